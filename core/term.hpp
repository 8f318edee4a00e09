// term: the thing locked. Any value, as its canonical bytes.
//
// Equal values of different integer width are the same term; values of
// different kinds never are. Empty strings, embedded NUL and bytes that are
// not UTF-8 are distinct, valid terms.
//
// Canonical bytes: a kind tag, then the payload.
//   0x01  integer >= 0: minimal big-endian bytes (zero: none)
//   0x02  integer < 0: minimal big-endian bytes of -1 - value
//   0x03  string: its bytes
//   0x04 ... 0x0a  bool, float, sequence, map, tuple, none, bytes: written by
//         actors/term_inspector.hpp, which turns any CAF-inspectable value
//         into a term. core knows no CAF.
//
// A term is a value: copy it, compare it, hash it. Up to 32 bytes lie in
// the object; longer ones are allocated.

#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pawl {

/// The hash of canonical bytes: XXH3, 64 bits.
std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept;

class term {
public:
  /// Larger terms are refused with `outcome::term_too_large`.
  static constexpr std::size_t max_size = 64 * 1024;

  /// Bytes that need no allocation.
  static constexpr std::size_t inline_size = 32;

  enum class kind : std::uint8_t { positive = 1, negative = 2, string = 3 };

  // -- constructors -----------------------------------------------------------

  /// The empty string.
  term() : term(std::string_view{}) {
    // nop
  }

  /// A string. Allocates only when longer than inline_size - 1.
  template <class T>
    requires std::convertible_to<const T&, std::string_view>
  term(const T& text) {
    std::string_view view{text};
    auto* out = reserve(view.size() + 1);
    out[0] = static_cast<std::byte>(kind::string);
    if (!view.empty())
      std::memcpy(out + 1, view.data(), view.size());
    hash_ = hash_bytes(bytes());
  }

  /// An integer, of any width and sign. Never allocates.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  term(T value) {
    if constexpr (std::signed_integral<T>) {
      if (value < 0) {
        set_integer(kind::negative, ~static_cast<std::uint64_t>(value));
        return;
      }
    }
    set_integer(kind::positive, static_cast<std::uint64_t>(value));
  }

  /// Takes canonical bytes as they are (from the wire, or an inspector).
  static term from_canonical(std::span<const std::byte> bytes);

  term(const term& other);
  term(term&& other) noexcept : hash_(other.hash_), size_(other.size_) {
    std::memcpy(static_cast<void*>(&data_), &other.data_, sizeof(data_));
    other.size_ = 0;
  }

  term& operator=(const term& other) {
    term copy{other};
    swap(copy);
    return *this;
  }

  term& operator=(term&& other) noexcept {
    swap(other);
    return *this;
  }

  ~term() {
    if (size_ > inline_size)
      delete[] data_.heap;
  }

  void swap(term& other) noexcept {
    std::swap(hash_, other.hash_);
    std::swap(size_, other.size_);
    auto tmp = data_;
    data_ = other.data_;
    other.data_ = tmp;
  }

  // -- queries ----------------------------------------------------------------

  /// The canonical bytes.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {size_ > inline_size ? data_.heap : data_.local, size_};
  }

  [[nodiscard]] std::uint64_t hash() const noexcept {
    return hash_;
  }

  /// Whether a lock request may name it.
  [[nodiscard]] bool fits() const noexcept {
    return size_ <= max_size;
  }

  friend bool operator==(const term& a, const term& b) noexcept {
    return a.hash_ == b.hash_ && a.size_ == b.size_
           && std::memcmp(a.bytes().data(), b.bytes().data(), a.size_) == 0;
  }

  /// The canonical order, in which requests for several terms take them: by
  /// bytes, shorter first when one is a prefix. The same on all nodes.
  friend std::strong_ordering operator<=>(const term& a,
                                          const term& b) noexcept {
    auto common = a.size_ < b.size_ ? a.size_ : b.size_;
    auto c = std::memcmp(a.bytes().data(), b.bytes().data(), common);
    if (c != 0)
      return c < 0 ? std::strong_ordering::less : std::strong_ordering::greater;
    return a.size_ <=> b.size_;
  }

private:
  /// Makes room for `size` bytes and returns where they go.
  std::byte* reserve(std::size_t size) {
    size_ = static_cast<std::uint32_t>(size);
    if (size <= inline_size)
      return data_.local;
    data_.heap = new std::byte[size];
    return data_.heap;
  }

  void set_integer(kind tag, std::uint64_t value) noexcept;

  std::uint64_t hash_ = 0;
  union {
    std::byte local[inline_size];
    std::byte* heap;
  } data_;
  std::uint32_t size_ = 0;
};

static_assert(sizeof(term) == 48);

/// For people: integers as digits, strings as they are (non-printing bytes
/// escaped), other kinds as hex. Cut at 80 characters.
std::string to_string(const term& x);

} // namespace pawl

template <>
struct std::hash<pawl::term> {
  std::size_t operator()(const pawl::term& x) const noexcept {
    return x.hash();
  }
};
