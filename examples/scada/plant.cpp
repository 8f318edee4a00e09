#include "plant.hpp"

#include <fmt/format.h>

namespace scada {

namespace {

std::vector<std::string> numbered(std::string_view stem, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i)
    names.push_back(fmt::format("{}{:02}", stem, i + 1));
  return names;
}

void append(std::vector<tag_id>& out, tag_range range) {
  for (tag_id i = 0; i < range.count; ++i)
    out.push_back(range.first + i);
}

} // namespace

std::string_view to_string(service_kind x) noexcept {
  switch (x) {
    case service_kind::device_connection:
      return "device connection";
    case service_kind::script:
      return "script";
    case service_kind::archive:
      return "archive";
    default:
      return "operator";
  }
}

plant::plant(const plant_options& options) {
  for (std::size_t i = 0; i < options.devices.size(); ++i)
    add_device(options, i);
  for (std::size_t i = 0; i < devices_.size(); ++i)
    add_device_script(i);
  add_balance_script();
  add_service(service_kind::archive, "archive");
  for (std::size_t i = 0; i < options.operators; ++i)
    add_service(service_kind::operator_session,
                fmt::format("operator{}", i + 1));
}

const device_config* plant::device_of_setpoint(tag_id x) const {
  for (auto& device : devices_)
    if (device.setpoints.contains(x))
      return &device;
  return nullptr;
}

std::vector<tag_id> plant::setpoints() const {
  std::vector<tag_id> all;
  for (auto& device : devices_)
    append(all, device.setpoints);
  return all;
}

std::uint64_t plant::fingerprint() const {
  // FNV-1a over all names: the same on every machine and in every build.
  std::uint64_t hash = 0xcbf29ce484222325ull;
  auto mix = [&hash](std::string_view text) {
    for (auto c : text)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    hash = (hash ^ 0xff) * 0x100000001b3ull;
  };
  for (auto& name : tags_)
    mix(name);
  for (auto& service : services_)
    mix(service.name);
  return hash;
}

tag_range plant::add_tags(const std::string& prefix,
                          const std::vector<std::string>& names) {
  tag_range range{static_cast<tag_id>(tags_.size()),
                  static_cast<std::uint32_t>(names.size())};
  for (auto& name : names)
    tags_.push_back(fmt::format("{}.{}", prefix, name));
  return range;
}

service_config& plant::add_service(service_kind kind, std::string name) {
  service_config service;
  service.id = static_cast<service_id>(services_.size());
  service.name = std::move(name);
  service.kind = kind;
  services_.push_back(std::move(service));
  return services_.back();
}

void plant::add_device(const plant_options& options, std::size_t index) {
  device_config device;
  device.name = fmt::format("dev{}", index + 1);
  device.address = options.devices[index];
  device.inputs = add_tags(device.name, numbered("in", options.inputs));
  device.setpoints = add_tags(device.name, numbered("sp", options.setpoints));
  auto& service = add_service(service_kind::device_connection, device.name);
  service.device = index;
  service.writes
    = {device.inputs.first, device.inputs.count + device.setpoints.count};
  devices_.push_back(std::move(device));
}

// Reads its device and the next one, which is usually led by another node.
void plant::add_device_script(std::size_t index) {
  auto name = fmt::format("calc{}", index + 1);
  auto writes = add_tags(name, {"mean", "low", "high", "spread"});
  auto& service = add_service(service_kind::script, name);
  service.writes = writes;
  append(service.reads, devices_[index].inputs);
  if (devices_.size() > 1)
    append(service.reads, devices_[(index + 1) % devices_.size()].inputs);
}

// Reads what the other scripts have computed.
void plant::add_balance_script() {
  std::vector<tag_id> means;
  for (auto& other : services_)
    if (other.kind == service_kind::script)
      means.push_back(other.writes.first);
  auto writes = add_tags("balance", {"mean", "low", "high", "spread"});
  auto& service = add_service(service_kind::script, "balance");
  service.writes = writes;
  service.reads = std::move(means);
}

} // namespace scada
