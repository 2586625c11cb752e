#include "library_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>

namespace baton {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr Elf64_Half kMachine = EM_RISCV;
#else
#error "libbaton_runtime is for x86-64, aarch64 and riscv64"
#endif

constexpr std::uint64_t kAlignment = 64;  // of weights, in the file
constexpr char kMagic[8] = {'B', 'A', 'T', 'O', 'N', 0, 0, 1};

// The fixed fields in front of the metadata; see compiler/runtime/container.py.
struct Envelope {
  char magic[8];
  std::uint32_t metadata_checksum, code_checksum, weights_checksum, padding;
  std::uint64_t metadata_nbytes, weights_nbytes;
};
static_assert(sizeof(Envelope) == 40, "as struct.Struct packs it");

struct Section {
  std::uint64_t offset, size;
};

std::uint32_t crc32(const unsigned char* data, std::uint64_t size, std::uint32_t before = 0) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0u);
      made[i] = value;
    }
    return made;
  }();
  std::uint32_t value = ~before;
  for (std::uint64_t i = 0; i < size; ++i) value = table[(value ^ data[i]) & 255] ^ (value >> 8);
  return ~value;
}

/// A view of an ELF file whose tables lie inside of it.
class Elf {
 public:
  Elf(const MappedFile& file, const std::string& path) : file_(file), path_(path) {
    if (file.size() < sizeof(Elf64_Ehdr) || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
      throw std::runtime_error(path + " is not a shared library");
    }
    header_ = read<Elf64_Ehdr>(0);
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB) {
      throw std::runtime_error(path + " is not a 64-bit little-endian shared library");
    }
    if (header_.e_shnum == 0 || header_.e_shentsize != sizeof(Elf64_Shdr) ||
        header_.e_shstrndx >= header_.e_shnum) {
      throw corrupt("it has no table of sections");
    }
  }

  Elf64_Half machine() const { return header_.e_machine; }

  std::optional<Section> find(const std::string& wanted) const {
    const auto names = section(header_.e_shstrndx);
    require(names.sh_offset, names.sh_size);
    for (Elf64_Half i = 0; i < header_.e_shnum; ++i) {
      const auto entry = section(i);
      if (entry.sh_type == SHT_NOBITS || entry.sh_name >= names.sh_size) continue;
      const auto* name =
          reinterpret_cast<const char*>(file_.data() + names.sh_offset + entry.sh_name);
      const std::uint64_t room = names.sh_size - entry.sh_name;
      if (wanted.size() + 1 > room || std::memcmp(name, wanted.c_str(), wanted.size() + 1) != 0) {
        continue;
      }
      require(entry.sh_offset, entry.sh_size);
      return Section{entry.sh_offset, entry.sh_size};
    }
    return std::nullopt;
  }

  /// Of what the dynamic loader maps, without the ELF header.
  std::uint32_t image_checksum() const {
    std::uint32_t checksum = 0;
    for (Elf64_Half i = 0; i < header_.e_phnum; ++i) {
      const auto segment = read<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr));
      if (segment.p_type != PT_LOAD) continue;
      require(segment.p_offset, segment.p_filesz);
      const std::uint64_t start =
          segment.p_offset > sizeof(Elf64_Ehdr) ? segment.p_offset : sizeof(Elf64_Ehdr);
      const std::uint64_t stop = segment.p_offset + segment.p_filesz;
      if (start < stop) checksum = crc32(file_.data() + start, stop - start, checksum);
    }
    return checksum;
  }

  std::runtime_error corrupt(const std::string& why) const {
    return std::runtime_error(path_ + " is corrupt or truncated (" + why +
                              "); export the model again");
  }

  void require(std::uint64_t offset, std::uint64_t size) const {
    if (offset > file_.size() || size > file_.size() - offset) {
      throw corrupt("it ends early");
    }
  }

 private:
  template <typename T>
  T read(std::uint64_t offset) const {
    require(offset, sizeof(T));
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof(T));
    return value;
  }

  Elf64_Shdr section(Elf64_Half index) const {
    return read<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr));
  }

  const MappedFile& file_;
  const std::string& path_;
  Elf64_Ehdr header_{};
};

std::runtime_error cant_open(const std::string& path) {
  return std::runtime_error("can't open the library " + path + ": " + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Opening a FIFO would wait for a writer without O_NONBLOCK, which regular files ignore.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw cant_open(path);
  struct stat status;
  const bool known = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  void* mapped = MAP_FAILED;
  if (known && status.st_size > 0) {
    mapped = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE, descriptor, 0);
  }
  if (!known || (status.st_size > 0 && mapped == MAP_FAILED)) {
    const std::runtime_error error =
        known ? cant_open(path) : std::runtime_error(path + " is not a regular file");
    ::close(descriptor);
    throw error;
  }
  descriptor_ = descriptor;
  if (status.st_size > 0) {
    madvise(mapped, static_cast<std::size_t>(status.st_size), MADV_HUGEPAGE);  // a wish
    data_ = static_cast<unsigned char*>(mapped);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  path_for_loader_ = "/proc/self/fd";
  for (const std::uint64_t part : {static_cast<std::uint64_t>(status.st_dev),
                                   static_cast<std::uint64_t>(status.st_ino)}) {
    for (int bit = 63; bit >= 0; --bit) path_for_loader_ += part >> bit & 1 ? "/." : "/";
  }
  path_for_loader_ += "/" + std::to_string(descriptor);
}

void MappedFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

MappedFile::~MappedFile() {
  close();
  if (data_ != nullptr) munmap(data_, size_);
}

LibraryFile open_library(const std::string& path) {
  LibraryFile found;
  found.file = std::make_shared<MappedFile>(path);
  const Elf elf(*found.file, path);
  const auto metadata = elf.find(".baton.metadata");
  const auto weights = elf.find(".baton.weights");
  if (!metadata || !weights) {
    throw std::runtime_error(path + " holds no metadata of Baton's: it was not written by "
                             "export_library, or it is truncated");
  }
  Envelope envelope;
  if (metadata->size < sizeof(envelope)) throw elf.corrupt("its metadata end early");
  const unsigned char* start = found.file->data() + metadata->offset;
  std::memcpy(&envelope, start, sizeof(envelope));
  if (std::memcmp(envelope.magic, kMagic, sizeof(kMagic)) != 0) {
    throw std::runtime_error(path + ": the metadata are of another version of Baton, or corrupt");
  }
  const unsigned char* text = start + sizeof(envelope);
  const std::uint64_t length = metadata->size - sizeof(envelope);
  if (length != envelope.metadata_nbytes || crc32(text, length) != envelope.metadata_checksum) {
    throw elf.corrupt("its metadata do not have their checksum");
  }
  if (weights->size != envelope.weights_nbytes) throw elf.corrupt("weights are missing");
  if (weights->size > 0 && weights->offset % kAlignment != 0) {
    throw std::runtime_error(path + ": a tool has moved the weights; export the model again");
  }
  if (elf.image_checksum() != envelope.code_checksum) {
    throw elf.corrupt("its code does not have its checksum");
  }
  if (elf.machine() != kMachine) {
    throw std::runtime_error(path + " was built for another kind of processor (ELF machine " +
                             std::to_string(elf.machine()) + "); build the model for this one");
  }
  found.metadata.assign(reinterpret_cast<const char*>(text), length);
  found.weights_offset = weights->offset;
  found.weights_nbytes = weights->size;
  return found;
}

}  // namespace baton
