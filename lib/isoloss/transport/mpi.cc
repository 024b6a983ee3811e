// Implements `mpi`, which runs ranks as phases in the processes that an MPI
// launcher started.
#include "isoloss/transport/mpi_job.h"
#include "isoloss/transport/process_transport.h"
#include "isoloss/transport/registry.h"

namespace isoloss::transport {

extern constinit const TransportKind kTransport_mpi = {
    .name = "mpi",
    .spans_processes = true,
    .make = [](const TransportOptions& options,
               ThreadTeam& team) -> std::unique_ptr<Transport> {
      MpiLink& link = JoinMpiJob(options);
      return std::make_unique<ProcessTransport>("mpi", options, team,
                                                NextMpiRun(), &link);
    }};

}  // namespace isoloss::transport
