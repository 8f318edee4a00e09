#include "child.hpp"

#include <csignal>
#include <sys/prctl.h>
#include <unistd.h>

namespace scada {

namespace {

volatile std::sig_atomic_t stop_flag = 0;

} // namespace

bool die_with_parent(int parent) {
  if (parent == 0)
    return true;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the call, and then nobody would tell us.
  return getppid() == parent;
}

void catch_stop_signals() {
  // No SA_RESTART: a loop that waits is to wake up.
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_flag = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool stop_requested() noexcept {
  return stop_flag != 0;
}

} // namespace scada
