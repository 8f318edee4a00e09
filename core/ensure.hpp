// ensure(): asserts our own mistakes, in every build.
//
// It is for what must be true if pawl's code is right. It is never for what a
// peer, a user, a clock or a dying session may do: those are values with a
// cause (see outcome.hpp).

#pragma once

namespace pawl {

/// Says `what` and where on stderr, then aborts. Never returns.
[[noreturn]] void ensure_failed(const char* what, const char* file,
                                int line) noexcept;

/// Aborts with `what` unless `condition` holds. Costs a predicted branch.
inline void ensure(bool condition, const char* what,
                   const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) noexcept {
  if (!condition) [[unlikely]]
    ensure_failed(what, file, line);
}

} // namespace pawl
