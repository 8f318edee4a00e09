#include "pawl/core/term.hpp"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pawl {

namespace {

constexpr std::size_t max_shown = 80;

std::string printable(std::span<const std::byte> text) {
  std::string result;
  for (auto byte : text) {
    if (result.size() >= max_shown) {
      result += "...";
      break;
    }
    auto c = static_cast<unsigned char>(byte);
    if (c < 0x20 || c == 0x7f)
      result += fmt::format("\\x{:02x}", c);
    else
      result += static_cast<char>(c);
  }
  return result;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string result = "0x";
  for (auto byte : bytes) {
    if (result.size() >= max_shown) {
      result += "...";
      break;
    }
    result += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return result;
}

} // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

term term::from_canonical(std::span<const std::byte> bytes) {
  term result;
  auto* out = result.reserve(bytes.size());
  if (!bytes.empty())
    std::memcpy(out, bytes.data(), bytes.size());
  result.hash_ = hash_bytes(result.bytes());
  return result;
}

term::term(const term& other) : hash_(other.hash_) {
  auto* out = reserve(other.size_);
  if (other.size_ > 0)
    std::memcpy(out, other.bytes().data(), other.size_);
}

void term::set_integer(kind tag, std::uint64_t value) noexcept {
  unsigned width = 0;
  for (auto rest = value; rest != 0; rest >>= 8)
    ++width;
  auto* out = reserve(width + 1);
  out[0] = static_cast<std::byte>(tag);
  for (unsigned i = 0; i < width; ++i)
    out[1 + i] = static_cast<std::byte>(value >> (8 * (width - 1 - i)));
  hash_ = hash_bytes(bytes());
}

std::string to_string(const term& x) {
  auto all = x.bytes();
  if (all.empty())
    return "(no bytes)";
  auto payload = all.subspan(1);
  auto tag = static_cast<term::kind>(all[0]);
  if (tag == term::kind::string)
    return printable(payload);
  if ((tag == term::kind::positive || tag == term::kind::negative)
      && payload.size() <= 8) {
    std::uint64_t value = 0;
    for (auto byte : payload)
      value = (value << 8) | static_cast<std::uint64_t>(byte);
    if (tag == term::kind::positive)
      return fmt::format("{}", value);
    if (value == ~std::uint64_t{0})
      return "-18446744073709551616";
    return fmt::format("-{}", value + 1);
  }
  return hex(all);
}

} // namespace pawl
