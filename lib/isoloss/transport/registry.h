// What a registered transport defines (transports.def).
#pragma once

#include <memory>
#include <string_view>

#include "isoloss/base/executor.h"
#include "isoloss/transport/transport.h"

namespace isoloss::transport {

struct TransportKind {
  std::string_view name;
  /// Whether all processes of a launcher take part; else there is one process.
  bool spans_processes;
  /// Called with options that MakeTransport has checked.
  std::unique_ptr<Transport> (*make)(const TransportOptions& options,
                                     Executor& executor);
};

}  // namespace isoloss::transport
