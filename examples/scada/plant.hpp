// The plant: which tags there are and which services write them. Computed from
// a few numbers, the same on every node; knows no lock, no actor, no socket.
//
// Heavy services own the tags they write: a device connection those of its
// device, a script its outputs. No two heavy services write the same tag.
// Operators own nothing and may write any setpoint.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scada {

using tag_id = std::uint32_t;
using service_id = std::uint32_t;

/// Neighbouring tags. What a heavy service writes is always one such range.
struct tag_range {
  tag_id first = 0;
  std::uint32_t count = 0;

  [[nodiscard]] bool contains(tag_id x) const noexcept {
    return x >= first && x - first < count;
  }
};

enum class service_kind : std::uint8_t {
  device_connection,
  script,
  archive,
  operator_session,
};

std::string_view to_string(service_kind x) noexcept;

struct device_address {
  std::string host;
  std::uint16_t port = 0;
};

struct plant_options {
  std::vector<device_address> devices;
  std::uint16_t inputs = 60;   // input registers of a device
  std::uint16_t setpoints = 4; // holding registers of a device
  std::size_t operators = 2;
};

struct device_config {
  std::string name;
  device_address address;
  tag_range inputs;    // one tag for each input register
  tag_range setpoints; // one tag for each holding register, right behind
};

struct service_config {
  service_id id = 0;
  std::string name; // also the term under which the service is led
  service_kind kind = service_kind::archive;
  std::size_t device = 0;    // device connection: index of the device
  tag_range writes;          // heavy services: all they ever write
  std::vector<tag_id> reads; // scripts: what they subscribe to
};

class plant {
public:
  explicit plant(const plant_options& options);

  [[nodiscard]] const std::vector<std::string>& tags() const noexcept {
    return tags_;
  }

  [[nodiscard]] const std::vector<device_config>& devices() const noexcept {
    return devices_;
  }

  [[nodiscard]] const std::vector<service_config>& services() const noexcept {
    return services_;
  }

  /// The device that a setpoint tag belongs to; null for any other tag.
  [[nodiscard]] const device_config* device_of_setpoint(tag_id x) const;

  /// All setpoint tags, which is what operators choose from.
  [[nodiscard]] std::vector<tag_id> setpoints() const;

  /// Differs when two nodes were given different plants.
  [[nodiscard]] std::uint64_t fingerprint() const;

private:
  tag_range add_tags(const std::string& prefix,
                     const std::vector<std::string>& names);
  service_config& add_service(service_kind kind, std::string name);
  void add_device(const plant_options& options, std::size_t index);
  void add_device_script(std::size_t index);
  void add_balance_script();

  std::vector<std::string> tags_;
  std::vector<device_config> devices_;
  std::vector<service_config> services_;
};

} // namespace scada
