// Implements `shuffled`, which is `threads` with arrival and completion in a
// seeded random order. That order must not change a bit.
#include "isoloss/transport/rank_threads.h"
#include "isoloss/transport/registry.h"

namespace isoloss::transport {

extern constinit const TransportKind kTransport_shuffled = {
    .name = "shuffled",
    .spans_processes = false,
    .make = [](const TransportOptions& options,
               ThreadTeam&) -> std::unique_ptr<Transport> {
      return std::make_unique<RankThreads>("shuffled", options,
                                           RankThreads::Order::kShuffled);
    }};

}  // namespace isoloss::transport
