// What every process that the supervisor starts does first: it dies with its
// parent, and a request to stop is a flag that its loop looks at.

#pragma once

namespace scada {

/// Asks the kernel for SIGKILL when the parent dies. Returns false if it is
/// gone already; the caller should leave then. `parent` is the process id that
/// is expected; 0 for a process that was started by hand and has no such bond.
[[nodiscard]] bool die_with_parent(int parent);

/// From now on SIGTERM, SIGINT and SIGHUP set the flag below.
void catch_stop_signals();

[[nodiscard]] bool stop_requested() noexcept;

} // namespace scada
