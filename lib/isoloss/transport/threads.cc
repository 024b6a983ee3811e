// Implements `threads`, which gives each rank a thread.
#include "isoloss/transport/rank_threads.h"
#include "isoloss/transport/registry.h"

namespace isoloss::transport {

extern constinit const TransportKind kTransport_threads = {
    .name = "threads",
    .spans_processes = false,
    .make = [](const TransportOptions& options,
               ThreadTeam&) -> std::unique_ptr<Transport> {
      return std::make_unique<RankThreads>("threads", options,
                                           RankThreads::Order::kNatural);
    }};

}  // namespace isoloss::transport
