// The file of an exported library: what `compiler/runtime/load.py` checks, checked in C++.
#ifndef BATON_NATIVE_LIBRARY_FILE_H_
#define BATON_NATIVE_LIBRARY_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

namespace baton {

/// A file that is mapped whole; a write to the mapping changes the writer's copy alone.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  unsigned char* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  /// A path of the open file itself, whatever lies at its own path by now. It names the device and
  /// inode, because the dynamic loader takes equal names for one library. Valid until `close`.
  const std::string& path_for_loader() const { return path_for_loader_; }
  /// Close the descriptor. The mapping stays.
  void close();

 private:
  unsigned char* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::string path_for_loader_;
  int descriptor_ = -1;
};

/// A whole library for this kind of processor, of which no code has been loaded.
struct LibraryFile {
  std::shared_ptr<MappedFile> file;
  std::string metadata;             // JSON
  std::uint64_t weights_offset = 0;  // in the file
  std::uint64_t weights_nbytes = 0;
};

/// Throws std::runtime_error that says what is wrong with the file.
LibraryFile open_library(const std::string& path);

}  // namespace baton

#endif  // BATON_NATIVE_LIBRARY_FILE_H_
