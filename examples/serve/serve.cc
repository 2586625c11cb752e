// Serves a library over TCP: a request is the bytes of all inputs in their order, an answer those of all
// outputs. A connection may send any number of requests; each has a thread and a session of its own,
// and all share the weights. It listens on loopback alone. Of more than CONNECTIONS at a time the
// last are closed at once, and so is one that neither sends nor reads for SECONDS.
//
//     serve LIBRARY.so PORT [THREADS [SECONDS [CONNECTIONS]]]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <baton/runtime.h>

constexpr int kMaxConnections = 64;
constexpr int kTimeoutSeconds = 30;

static std::atomic<int> connections{0};

// Have reads and writes of a connection fail after so many seconds without a byte.
static bool set_timeout(int connection, int seconds) {
  timeval limit{};
  limit.tv_sec = seconds;
  return setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
         setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0;
}

// Whether all of `size` bytes came or went.
template <typename Transfer, typename Byte>
bool transfer_all(Transfer transfer, int connection, Byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t done = transfer(connection, data, size);
    if (done <= 0) return false;
    data += done;
    size -= static_cast<std::size_t>(done);
  }
  return true;
}

static bool answer(int connection, baton_session* session, std::size_t inputs,
                   std::size_t outputs) {
  for (std::size_t i = 0; i < inputs; ++i) {
    auto* memory = static_cast<char*>(baton_session_input(session, i));
    if (!transfer_all(read, connection, memory, baton_session_input_nbytes(session, i))) {
      return false;
    }
  }
  if (baton_session_run(session) != 0) {
    std::fprintf(stderr, "%s\n", baton_last_error());
    return false;
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    baton_tensor tensor;
    if (baton_session_output(session, i, &tensor) != 0) return false;
    const auto* bytes = static_cast<const char*>(tensor.data);
    if (!transfer_all(write, connection, bytes, tensor.nbytes)) return false;
  }
  return true;
}

static void serve(int connection, const baton_library* library, int threads) {
  baton_session* session = nullptr;
  if (baton_session_create(library, threads, &session) != 0) {
    std::fprintf(stderr, "%s\n", baton_last_error());
  } else {
    const std::size_t inputs = baton_library_num_inputs(library);  // of known shapes
    const std::size_t outputs = baton_library_num_outputs(library);
    while (answer(connection, session, inputs, outputs)) {
    }
    baton_session_destroy(session);
  }
  --connections;
  close(connection);
}

// A number of the command line from 1 to `most`; 0 where the text is none.
static int number(const char* text, int most) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *text != '\0' && *end == '\0' && value >= 1 && value <= most ? static_cast<int>(value) : 0;
}

int main(int argc, char** argv) {
  const int threads = argc > 3 ? number(argv[3], 1024) : 1;
  const int seconds = argc > 4 ? number(argv[4], 86400) : kTimeoutSeconds;
  const int most = argc > 5 ? number(argv[5], 4096) : kMaxConnections;
  if (argc < 3 || argc > 6 || threads == 0 || seconds == 0 || most == 0) {
    std::fprintf(stderr, "usage: serve LIBRARY.so PORT [THREADS [SECONDS [CONNECTIONS]]]\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  baton_library* library = nullptr;
  if (baton_library_load(argv[1], &library) != 0) {
    std::fprintf(stderr, "%s\n", baton_last_error());
    return 1;
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[2])));
  socklen_t length = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || bind(listener, plain, length) != 0 || listen(listener, 16) != 0 ||
      getsockname(listener, plain, &length) != 0) {
    std::perror("can't listen");
    return 1;
  }
  std::printf("serving %s on port %d\n", argv[1], ntohs(address.sin_port));
  std::fflush(stdout);
  while (true) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) {  // out of descriptors, or the client is gone
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } else if (connections >= most || !set_timeout(connection, seconds)) {
      close(connection);
    } else {
      ++connections;
      std::thread(serve, connection, library, threads).detach();
    }
  }
}
