// A process that the supervisor has started: its output by lines, signals to
// it, and its end. Killed and reaped when the object goes.

#pragma once

#include "clock.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace scada {

class child_process {
public:
  /// Starts `command`; its stderr is appended to `log`. The child is in a
  /// process group of its own, so a Ctrl-C in the terminal reaches the
  /// supervisor alone, which then ends everything in order. Throws
  /// std::system_error if the process cannot be started.
  child_process(const std::vector<std::string>& command,
                const std::filesystem::path& log);

  ~child_process();

  child_process(const child_process&) = delete;

  child_process& operator=(const child_process&) = delete;

  /// For poll(2): readable when there is output; -1 at its end.
  [[nodiscard]] int output() const noexcept {
    return output_;
  }

  /// The complete lines that have come in; does not block.
  std::vector<std::string> read_lines();

  void signal(int number) noexcept;

  /// Whether it runs; notices its end.
  bool running() noexcept;

  /// Waits for its end for at most `patience`; whether it has ended.
  bool wait(time_ns patience) noexcept;

  /// SIGKILL, and waits for the end. Returns the moment before the signal.
  time_ns kill() noexcept;

  /// How it ended, in words.
  [[nodiscard]] std::string ending() const;

  /// Ended by itself with exit code 0.
  [[nodiscard]] bool succeeded() const noexcept;

private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string partial_;
  bool ended_ = false;
  int status_ = 0;
};

} // namespace scada
