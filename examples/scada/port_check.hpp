// Whether a port is free, asked before anything is started.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace scada {

/// A sentence that names the port, if nobody could listen on it now.
std::optional<std::string> why_not_free(const std::string& host,
                                        std::uint16_t port);

} // namespace scada
