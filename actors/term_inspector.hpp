// The canonical bytes of any value: equal bytes if and only if equal terms.
//
// A value is a kind tag and a payload. At top level the payload runs to the
// end; inside of something else its length stands before it (LEB128), so that
// each value is self-delimiting and no two different values share their bytes.
//
//   0x01  integer >= 0: minimal big-endian bytes (none for zero)
//   0x02  integer < 0: minimal big-endian bytes of -1 - value
//   0x03  string: its bytes
//   0x04  bool: one byte
//   0x05  floating point: 8 bytes, big-endian, as double; one zero, one NaN
//   0x06  sequence: number of elements (LEB128), elements
//   0x07  set or map: number, elements sorted by their bytes; an element of a
//         map is a tuple of key and value
//   0x08  tuple or inspected object: fields in order, without names
//   0x09  nothing
//   0x0a  bytes
//
// An enum is an integer. An optional value is a tuple of one, so that an
// optional of an empty optional is not an empty optional; a variant is a tuple
// of index and value, a duration a tuple of its nanoseconds, a handle a tuple
// of actor id and node, an atom a tuple of its text.

#pragma once

#include "pawl/actors/caf_compat.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace pawl {

enum class canonical_kind : std::uint8_t {
  non_negative = 0x01,
  negative = 0x02,
  string = 0x03,
  boolean = 0x04,
  floating = 0x05,
  sequence = 0x06,
  sorted = 0x07,
  tuple = 0x08,
  none = 0x09,
  bytes = 0x0a,
};

namespace detail {

template <class T>
struct is_smart_pointer : std::false_type {};

template <class T, class D>
struct is_smart_pointer<std::unique_ptr<T, D>> : std::true_type {};

template <class T>
struct is_smart_pointer<std::shared_ptr<T>> : std::true_type {};

template <class T>
struct is_std_variant : std::false_type {};

template <class... Ts>
struct is_std_variant<std::variant<Ts...>> : std::true_type {};

template <class T>
struct is_duration : std::false_type {};

template <class Rep, class Period>
struct is_duration<std::chrono::duration<Rep, Period>> : std::true_type {};

template <class T>
struct is_time_point : std::false_type {};

template <class Clock, class Duration>
struct is_time_point<std::chrono::time_point<Clock, Duration>>
  : std::true_type {};

template <class T>
struct is_typed_actor : std::false_type {};

template <class... Ts>
struct is_typed_actor<caf::typed_actor<Ts...>> : std::true_type {};

// clang-format does not know concepts yet.
// clang-format off

template <class T>
concept nothing_like
  = std::same_as<T, std::monostate> || std::same_as<T, std::nullopt_t>
    || std::same_as<T, std::nullptr_t> || std::same_as<T, caf::none_t>
    || std::same_as<T, caf::unit_t>;

template <class T>
concept text_like = std::convertible_to<const T&, std::string_view>
                    || std::same_as<T, compat::string_view>;

template <class T>
concept handle_like
  = std::same_as<T, caf::actor> || std::same_as<T, caf::actor_addr>
    || std::same_as<T, caf::strong_actor_ptr> || is_typed_actor<T>::value;

template <class T>
concept optional_like = compat::is_optional_v<T> || is_smart_pointer<T>::value;

template <class T>
concept bytes_like
  = std::ranges::contiguous_range<const T> && std::ranges::sized_range<const T>
    && std::same_as<std::ranges::range_value_t<const T>, std::byte>;

template <class T>
concept set_like = std::ranges::input_range<const T> && requires {
  typename T::key_type;
};

template <class T>
concept tuple_like = requires { std::tuple_size<T>::value; };

// clang-format on

template <class T>
inline constexpr bool never = false;

class canonical_writer {
public:
  using buffer = std::vector<std::byte>;

  explicit canonical_writer(buffer& out) : out_(out) {
    // nop
  }

  template <class T>
  void top(const T& x) {
    write<false>(x);
  }

private:
  // `Nested` values have their length in front of the payload.
  template <bool Nested, class T>
  void write(const T& x) {
    if constexpr (std::same_as<T, bool>) {
      header<Nested>(canonical_kind::boolean, 1);
      out_.push_back(static_cast<std::byte>(x));
    } else if constexpr (compat::atom<T>) {
      write_tuple<Nested>([&] { write<true>(compat::atom_text(x)); });
    } else if constexpr (std::is_enum_v<T>) {
      write_integer<Nested>(static_cast<std::underlying_type_t<T>>(x));
    } else if constexpr (std::is_integral_v<T>) {
      static_assert(sizeof(T) <= 8, "there are no terms of 128 bit integers");
      write_integer<Nested>(x);
    } else if constexpr (std::is_floating_point_v<T>) {
      static_assert(sizeof(T) <= 8,
                    "a long double is not the same on all machines");
      write_float<Nested>(x);
    } else if constexpr (nothing_like<T>) {
      header<Nested>(canonical_kind::none, 0);
    } else if constexpr (text_like<T>) {
      write_text<Nested>(x);
    } else if constexpr (std::same_as<T, caf::node_id>) {
      write_tuple<Nested>([&] { write<true>(to_string(x)); });
    } else if constexpr (handle_like<T>) {
      write_handle<Nested>(caf::actor_cast<caf::actor_addr>(x));
    } else if constexpr (optional_like<T>) {
      if (x)
        write_tuple<Nested>([&] { write<true>(*x); });
      else
        header<Nested>(canonical_kind::none, 0);
    } else if constexpr (is_std_variant<T>::value) {
      write_tuple<Nested>([&] {
        write_integer<true>(x.index());
        std::visit([this](const auto& y) { this->template write<true>(y); }, x);
      });
    } else if constexpr (is_duration<T>::value) {
      write_duration<Nested>(x);
    } else if constexpr (is_time_point<T>::value) {
      write_duration<Nested>(x.time_since_epoch());
    } else if constexpr (std::same_as<T, compat::byte_vector>) {
      write_bytes<Nested>(canonical_kind::bytes, x.bytes);
    } else if constexpr (compat::inspectable<T>) {
      write_tuple<Nested>([&] {
        compat::for_each_field(
          x, [this](const auto& y) { this->template write<true>(y); });
      });
    } else if constexpr (bytes_like<T>) {
      write_bytes<Nested>(canonical_kind::bytes,
                          {std::ranges::data(x), std::ranges::size(x)});
    } else if constexpr (set_like<T>) {
      write_sorted<Nested>(x);
    } else if constexpr (std::ranges::input_range<const T>) {
      write_sequence<Nested>(x);
    } else if constexpr (tuple_like<T>) {
      write_tuple<Nested>([&] {
        std::apply(
          [this](const auto&... xs) { (this->template write<true>(xs), ...); },
          x);
      });
    } else {
      static_assert(never<T>, "this type is no term: it has no inspect()");
    }
  }

  template <bool Nested, class T>
  void write_integer(T x) {
    if constexpr (std::is_same_v<T, bool>) {
      // Only as the underlying type of an enum.
      write_magnitude<Nested>(canonical_kind::non_negative, x ? 1 : 0);
    } else if constexpr (std::is_signed_v<T>) {
      auto y = static_cast<std::int64_t>(x);
      if (y < 0)
        write_magnitude<Nested>(canonical_kind::negative,
                                ~static_cast<std::uint64_t>(y));
      else
        write_magnitude<Nested>(canonical_kind::non_negative,
                                static_cast<std::uint64_t>(y));
    } else {
      write_magnitude<Nested>(canonical_kind::non_negative,
                              static_cast<std::uint64_t>(x));
    }
  }

  template <bool Nested>
  void write_magnitude(canonical_kind kind, std::uint64_t x) {
    auto n = static_cast<std::size_t>((std::bit_width(x) + 7) / 8);
    header<Nested>(kind, n);
    big_endian(x, n);
  }

  template <bool Nested>
  void write_float(double x) {
    if (std::isnan(x))
      x = std::numeric_limits<double>::quiet_NaN();
    else if (x == 0)
      x = 0; // not -0.0
    header<Nested>(canonical_kind::floating, 8);
    big_endian(std::bit_cast<std::uint64_t>(x), 8);
  }

  template <bool Nested, class T>
  void write_text(const T& x) {
    if constexpr (std::is_array_v<T>) {
      // An array that is not terminated ends where it ends.
      constexpr auto n = std::extent_v<T>;
      std::string_view text{x, n};
      text = text.substr(0, text.find('\0'));
      write_bytes<Nested>(canonical_kind::string, as_bytes(text));
    } else if constexpr (std::is_pointer_v<T>) {
      auto text = x != nullptr ? std::string_view{x} : std::string_view{};
      write_bytes<Nested>(canonical_kind::string, as_bytes(text));
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
      write_bytes<Nested>(canonical_kind::string,
                          as_bytes(std::string_view{x}));
    } else {
      write_bytes<Nested>(canonical_kind::string,
                          as_bytes(std::string_view{x.data(), x.size()}));
    }
  }

  template <bool Nested>
  void write_handle(const caf::actor_addr& x) {
    if (!x) {
      header<Nested>(canonical_kind::none, 0);
      return;
    }
    write_tuple<Nested>([&] {
      write<true>(x.id());
      write<true>(to_string(x.node()));
    });
  }

  template <bool Nested, class Rep, class Period>
  void write_duration(std::chrono::duration<Rep, Period> x) {
    using rep
      = std::conditional_t<std::is_floating_point_v<Rep>, double, std::int64_t>;
    using nanoseconds = std::chrono::duration<rep, std::nano>;
    write_tuple<Nested>(
      [&] { write<true>(std::chrono::duration_cast<nanoseconds>(x).count()); });
  }

  template <bool Nested, class T>
  void write_sequence(const T& xs) {
    composite<Nested>(canonical_kind::sequence, [&] {
      using value_type = std::ranges::range_value_t<const T>;
      varint(static_cast<std::size_t>(std::ranges::distance(xs)));
      // The static type matters for std::vector<bool>.
      for (auto&& x : xs)
        write<true, value_type>(x);
    });
  }

  template <bool Nested, class T>
  void write_sorted(const T& xs) {
    std::vector<buffer> elements;
    for (const auto& x : xs) {
      buffer element;
      canonical_writer{element}.write<true>(x);
      elements.push_back(std::move(element));
    }
    std::sort(elements.begin(), elements.end());
    composite<Nested>(canonical_kind::sorted, [&] {
      varint(elements.size());
      for (const auto& element : elements)
        out_.insert(out_.end(), element.begin(), element.end());
    });
  }

  template <bool Nested>
  void write_bytes(canonical_kind kind, std::span<const std::byte> bytes) {
    header<Nested>(kind, bytes.size());
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }

  template <bool Nested, class F>
  void write_tuple(F fields) {
    composite<Nested>(canonical_kind::tuple, std::move(fields));
  }

  // The length of a composite is known only when it is written.
  template <bool Nested, class F>
  void composite(canonical_kind kind, F payload) {
    out_.push_back(static_cast<std::byte>(kind));
    auto start = out_.size();
    payload();
    if constexpr (Nested) {
      auto end = out_.size();
      varint(end - start);
      std::rotate(at(start), at(end), out_.end());
    }
  }

  template <bool Nested>
  void header(canonical_kind kind, std::size_t size) {
    out_.push_back(static_cast<std::byte>(kind));
    if constexpr (Nested)
      varint(size);
  }

  void varint(std::size_t x) {
    for (; x >= 0x80; x >>= 7)
      out_.push_back(static_cast<std::byte>(x | 0x80));
    out_.push_back(static_cast<std::byte>(x));
  }

  void big_endian(std::uint64_t x, std::size_t n) {
    for (; n > 0; --n)
      out_.push_back(static_cast<std::byte>(x >> (8 * (n - 1))));
  }

  buffer::iterator at(std::size_t pos) {
    return out_.begin() + static_cast<std::ptrdiff_t>(pos);
  }

  static std::span<const std::byte> as_bytes(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
  }

  buffer& out_;
};

} // namespace detail

// Appends the canonical bytes of `value` to `out`.
template <class T>
void to_canonical(std::vector<std::byte>& out, const T& value) {
  static_assert(!std::is_empty_v<T> || compat::atom<T>,
                "a type without state has one value only: it is no term");
  detail::canonical_writer{out}.top(value);
}

} // namespace pawl
