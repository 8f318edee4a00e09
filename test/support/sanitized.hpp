// Whether a sanitizer is at work: all is slower by an order then, and freed memory
// is kept.

#pragma once

namespace pawl::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

} // namespace pawl::testing
