#include "pawl/core/ensure.hpp"

#include <cstdio>
#include <cstdlib>

namespace pawl {

void ensure_failed(const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "pawl: %s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

} // namespace pawl
