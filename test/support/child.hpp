// child: a process that a test or a bench starts, speaks to by lines, and ends.
// Killed with its object, and with its starter.

#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pawl::testing {

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
    if (pid_ < 0)
      throw std::runtime_error("no process");
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

  [[nodiscard]] pid_t pid() const noexcept {
    return pid_;
  }

  void signal(int number) const {
    if (pid_ > 0) // not all processes
      ::kill(pid_, number);
  }

  /// Ends it in good order; its exit status, -1 if it does not end, or badly.
  int quit(std::chrono::seconds limit) {
    ::close(std::exchange(to_, ::open("/dev/null", O_WRONLY | O_CLOEXEC)));
    auto status = wait_end(limit);
    return status && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
  }

  void tell(const std::string& x) const {
    auto line = x + "\n";
    (void) !::write(to_, line.data(), line.size());
  }

  /// The next line.
  /// @throws std::runtime_error there is none in time, or it has ended, and how
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
        throw std::runtime_error("does not answer in time");
      char some[4096];
      auto n = ::read(from_, some, sizeof(some));
      if (n <= 0)
        throw std::runtime_error("has ended: " + how_it_ended());
      read_.append(some, static_cast<std::size_t>(n));
    }
  }

private:
  /// Its status, if it ends in time or has ended by itself before.
  std::optional<int> wait_end(std::chrono::seconds limit) {
    if (pid_ <= 0)
      return ended_with_;
    auto end = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end)
        return std::nullopt;
      ::usleep(2'000);
    }
    pid_ = -1;
    return ended_with_ = status;
  }

  std::string how_it_ended() {
    auto status = wait_end(std::chrono::seconds{5});
    if (!status)
      return "it has closed its output only";
    return WIFSIGNALED(*status)
             ? "signal " + std::to_string(WTERMSIG(*status))
             : "exit status " + std::to_string(WEXITSTATUS(*status));
  }

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::optional<int> ended_with_;
  std::string read_;
};

} // namespace pawl::testing
