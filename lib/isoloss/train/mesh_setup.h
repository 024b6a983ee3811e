// Builds the mesh of a run from an experiment's [parallel].
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/transport/transport.h"

namespace isoloss::train {

/// Makes the transport of a run; tests pass their own.
using TransportFactory = std::function<std::unique_ptr<transport::Transport>(
    const transport::TransportOptions& options, Executor& executor)>;

/// Throws ConfigError unless the batch and the experts divide among `processes`
/// so that every sum over processes is a node of its tree. Each process's share
/// must be a power of two of sequences and of token leaves, and whole leaves of
/// the gradient norm.
void CheckProcesses(const Experiment& experiment, size_t processes);

/// Calls CheckProcesses for the processes that a launcher started. It runs
/// before MPI starts, so that a mistake does not crash a job. Transports except
/// `mpi` refuse such processes themselves.
void CheckLaunch(const Experiment& experiment);

/// Makes the mesh of `arm`. `make_transport` is not called if no rows have to
/// travel; null: as [parallel] says. Transport `mpi` leaves the reason in
/// `reason_folder` if this process ends the job; may be empty.
/// Errors   as CheckProcesses and transport::MakeTransport.
std::unique_ptr<expert_parallel::Mesh> MakeMesh(
    const Experiment& experiment, const Arm& arm,
    const std::string& reason_folder, Executor& executor,
    const TransportFactory& make_transport = {});

/// Writes the arm's exchange options on one line, as keys of [parallel], with
/// the keys of the mesh on which the arm's bits depend. If the arm sums by rank
/// or node, `expert_parallel` is the number of ranks that share its experts. If
/// it sums by node, `node_ranks` is how many of these ranks a node has.
std::string DescribeExchange(const Experiment& experiment, const Arm& arm);

/// Describes, for the log, the mesh and the data that travel on it.
void DescribeMesh(const Experiment& experiment, const Arm& arm,
                  const expert_parallel::Mesh& mesh,
                  runlog::Provenance& provenance);

}  // namespace isoloss::train
