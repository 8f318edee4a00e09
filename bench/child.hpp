// child: a process that a bench starts, speaks to by lines, and ends. Killed
// with its object, and with the bench.

#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

/// A port of loopback that nobody listens at now; another one each time.
inline std::uint16_t free_port() {
  static std::set<std::uint16_t> given;
  for (;;) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    (void) ::bind(fd, reinterpret_cast<sockaddr*>(&at), size);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
    ::close(fd);
    if (given.insert(ntohs(at.sin_port)).second)
      return ntohs(at.sin_port);
  }
}

class child {
public:
  explicit child(std::vector<std::string> command) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipes");
    std::vector<char*> argv;
    for (auto& x : command)
      argv.push_back(x.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }

  child(const child&) = delete;
  child& operator=(const child&) = delete;

  ~child() {
    kill();
    ::close(to_);
    ::close(from_);
  }

  void kill() {
    if (pid_ <= 0)
      return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  void signal(int number) const {
    ::kill(pid_, number);
  }

  /// Ends it in good order; its exit status, -1 if it does not end.
  int quit(std::chrono::seconds limit) {
    ::close(std::exchange(to_, ::open("/dev/null", O_WRONLY | O_CLOEXEC)));
    auto end = std::chrono::steady_clock::now() + limit;
    int status = -1;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end)
        return -1;
      ::usleep(2'000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void tell(const std::string& x) const {
    auto line = x + "\n";
    (void) !::write(to_, line.data(), line.size());
  }

  /// The next line.
  /// @throws std::runtime_error there is none in time
  std::string hear(std::chrono::milliseconds limit) {
    auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
      if (auto i = read_.find('\n'); i != std::string::npos) {
        auto line = read_.substr(0, i);
        read_.erase(0, i + 1);
        return line;
      }
      auto left = std::chrono::ceil<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
      pollfd x{from_, POLLIN, 0};
      if (left.count() <= 0
          || ::poll(&x, 1, static_cast<int>(left.count())) <= 0)
        throw std::runtime_error("a process did not answer in time");
      char some[4096];
      auto n = ::read(from_, some, sizeof(some));
      if (n <= 0)
        throw std::runtime_error("a process ended unasked");
      read_.append(some, static_cast<std::size_t>(n));
    }
  }

private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string read_;
};

} // namespace bench
