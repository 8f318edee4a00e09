#include "child_process.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace scada {

namespace {

[[noreturn]] void fail(const char* doing) {
  throw std::system_error{errno, std::generic_category(), doing};
}

// After fork(), so only what is allowed there.
[[noreturn]] void become(char* const* arguments, int output, int log) {
  setpgid(0, 0);
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  constexpr char text[] = "cannot be executed\n";
  (void) !write(STDERR_FILENO, text, sizeof(text) - 1);
  _exit(127);
}

} // namespace

child_process::child_process(const std::vector<std::string>& command,
                             const std::filesystem::path& log) {
  std::vector<char*> arguments;
  for (auto& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail("pipe");
  auto log_file
    = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  pid_ = log_file < 0 ? -1 : fork();
  if (pid_ == 0)
    become(arguments.data(), ends[1], log_file);
  auto why = errno;
  close(ends[1]);
  if (log_file >= 0)
    close(log_file);
  if (pid_ < 0) {
    close(ends[0]);
    errno = why;
    fail("starting a process");
  }
  output_ = ends[0];
  fcntl(output_, F_SETFL, O_NONBLOCK);
}

child_process::~child_process() {
  kill();
  if (output_ >= 0)
    close(output_);
}

std::vector<std::string> child_process::read_lines() {
  char buffer[16384];
  while (output_ >= 0) {
    auto size = read(output_, buffer, sizeof(buffer));
    if (size > 0) {
      partial_.append(buffer, static_cast<std::size_t>(size));
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(std::exchange(output_, -1));
    } else {
      break;
    }
  }
  std::vector<std::string> lines;
  std::size_t start = 0;
  for (auto end = partial_.find('\n'); end != std::string::npos;
       end = partial_.find('\n', start)) {
    lines.push_back(partial_.substr(start, end - start));
    start = end + 1;
  }
  partial_.erase(0, start);
  return lines;
}

void child_process::signal(int number) noexcept {
  if (running())
    ::kill(pid_, number);
}

bool child_process::running() noexcept {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_)
    ended_ = true;
  return !ended_;
}

bool child_process::wait(time_ns patience) noexcept {
  auto end = now_ns() + patience;
  while (running() && now_ns() < end)
    usleep(5000);
  return ended_;
}

time_ns child_process::kill() noexcept {
  auto before = now_ns();
  if (running()) {
    ::kill(pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR)
      continue;
    ended_ = true;
  }
  return before;
}

std::string child_process::ending() const {
  if (!ended_)
    return "still runs";
  if (WIFSIGNALED(status_))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status_),
                       strsignal(WTERMSIG(status_)));
  return fmt::format("ended with code {}", WEXITSTATUS(status_));
}

bool child_process::succeeded() const noexcept {
  return ended_ && WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
}

} // namespace scada
