// What decodes must encode to the bytes that it came from, and nothing else
// may happen. An engine calls this with whatever bytes it likes.

#include "pawl/net/wire.hpp"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace pawl;

/// Of another version only the start is read.
bool foreign(const wire::frame& x) {
  if (const auto* y = std::get_if<wire::hello>(&x))
    return y->self.version != wire::protocol_version;
  if (const auto* y = std::get_if<wire::welcome>(&x))
    return y->self.version != wire::protocol_version;
  if (const auto* y = std::get_if<wire::reject>(&x))
    return y->version != wire::protocol_version;
  return false;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  auto in = std::as_bytes(std::span{data, size});
  auto x = wire::decode(in);
  if (auto* whole = std::get_if<wire::frame>(&x); whole && !foreign(*whole)) {
    if (!std::ranges::equal(wire::encode(*whole), in))
      std::abort();
  }
  auto y = wire::decode_message(in);
  if (auto* what = std::get_if<message>(&y)) {
    if (!std::ranges::equal(wire::encode_message(*what), in))
      std::abort();
  }
  return 0;
}
