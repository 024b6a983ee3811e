// Defines what a registered transport consists of (transports.def).
#pragma once

#include <memory>
#include <string_view>

#include "isoloss/base/threads.h"
#include "isoloss/transport/transport.h"

namespace isoloss::transport {

struct TransportKind {
  std::string_view name;
  /// True if all processes of a launcher take part; else there is one process.
  bool spans_processes;
  /// MakeTransport calls it with options that it has checked.
  std::unique_ptr<Transport> (*make)(const TransportOptions& options,
                                     ThreadTeam& team);
};

}  // namespace isoloss::transport
