// misuse: a call that cannot be right, whatever happens: thrown at the caller.

#pragma once

#include <stdexcept>

namespace pawl {

/// Thrown for `.then` outside the actor, `.wait()` inside an event-based actor,
/// and options that make no sense. The message says what to do instead.
class misuse : public std::logic_error {
public:
  using std::logic_error::logic_error;
};

} // namespace pawl
