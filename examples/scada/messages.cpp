#include "messages.hpp"

namespace scada {

namespace {

wire_stamp stamp_to_wire(const write_stamp& x) {
  return {x.service, x.epoch, x.lock_token, static_cast<std::uint8_t>(x.mode),
          x.time};
}

wire_update update_to_wire(const tag_update& x) {
  return {x.tag, x.value, static_cast<std::uint8_t>(x.state),
          stamp_to_wire(x.stamp)};
}

bool take(const wire_stamp& x, write_stamp& out) {
  auto mode = static_cast<pawl::lock_mode>(x.mode);
  out = {x.service, x.epoch, x.lock_token, mode, x.time};
  return mode == pawl::shared || mode == pawl::exclusive;
}

bool take(const wire_update& x, tag_update& out) {
  out.tag = x.tag;
  out.value = x.value;
  out.state = static_cast<quality>(x.state);
  return x.state <= static_cast<std::uint8_t>(quality::bad)
         && take(x.stamp, out.stamp);
}

} // namespace

wire_updates to_wire(const tag_updates& xs) {
  wire_updates out;
  out.reserve(xs.size());
  for (auto& x : xs)
    out.push_back(update_to_wire(x));
  return out;
}

wire_images to_wire(const tag_images& xs) {
  wire_images out;
  out.reserve(xs.size());
  for (auto& x : xs) {
    out.push_back({update_to_wire(x.current), {}});
    for (auto& mark : x.marks)
      out.back().marks.push_back(stamp_to_wire(mark));
  }
  return out;
}

std::optional<tag_updates> from_wire(const wire_updates& xs) {
  tag_updates out(xs.size());
  for (std::size_t i = 0; i < xs.size(); ++i)
    if (!take(xs[i], out[i]))
      return std::nullopt;
  return out;
}

std::optional<tag_images> from_wire(const wire_images& xs) {
  tag_images out(xs.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (!take(xs[i].current, out[i].current))
      return std::nullopt;
    for (auto& mark : xs[i].marks)
      if (!take(mark, out[i].marks.emplace_back()))
        return std::nullopt;
  }
  return out;
}

} // namespace scada
