// make_term: any value that CAF can inspect, as a term.

#pragma once

#include "pawl/actors/term_inspector.hpp"
#include "pawl/core/term.hpp"

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

namespace pawl {

/// The term for `value`. Strings and integers need no allocation when short;
/// other values are written as canonical bytes (see term_inspector.hpp). A
/// term that is too large is made all the same, and refused by the request.
template <class T>
term make_term(T&& value) {
  using type = std::decay_t<T>;
  if constexpr (std::same_as<type, term>) {
    return std::forward<T>(value);
  } else if constexpr (std::convertible_to<const type&, std::string_view>) {
    return term{std::string_view{value}};
  } else if constexpr (std::integral<type> && !std::same_as<type, bool>) {
    return term{value};
  } else {
    std::vector<std::byte> bytes;
    to_canonical(bytes, value);
    return term::from_canonical(bytes);
  }
}

} // namespace pawl
