// Implements `loop`, which runs all ranks in this process, as phases on its
// team of threads.
#include "isoloss/transport/process_transport.h"
#include "isoloss/transport/registry.h"

namespace isoloss::transport {

extern constinit const TransportKind kTransport_loop = {
    .name = "loop",
    .spans_processes = false,
    .make = [](const TransportOptions& options,
               ThreadTeam& team) -> std::unique_ptr<Transport> {
      return std::make_unique<ProcessTransport>("loop", options, team,
                                                /*run_id=*/0, nullptr);
    }};

}  // namespace isoloss::transport
