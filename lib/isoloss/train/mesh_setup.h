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
/// so that every sum over processes is a node of its tree: each process's share
/// must be a power of two of sequences and of token leaves, and whole leaves of
/// the gradient norm.
void CheckProcesses(const Experiment& experiment, size_t processes);

/// CheckProcesses for those that a launcher started, before MPI starts: a
/// mistake is then no crash of a job. Another transport than `mpi` refuses them
/// itself.
void CheckLaunch(const Experiment& experiment);

/// The mesh of `arm`. `make_transport` is not called if nothing has to travel;
/// null: what [parallel] says. `reason_folder`: where transport `mpi` leaves
/// the reason if this process ends the job; may be empty. Errors   as
/// CheckProcesses and transport::MakeTransport.
std::unique_ptr<expert_parallel::Mesh> MakeMesh(
    const Experiment& experiment, const Arm& arm,
    const std::string& reason_folder, Executor& executor,
    const TransportFactory& make_transport = {});

/// The arm's exchange options on one line, as keys of [parallel], and of the
/// mesh what the arm's bits depend on: how many ranks share its experts
/// (`expert_parallel`) if it sums by rank or node, and how many of them a node
/// has (`node_ranks`) if by node.
std::string DescribeExchange(const Experiment& experiment, const Arm& arm);

/// Describes, for the log, the mesh and the data that travel on it.
void DescribeMesh(const Experiment& experiment, const Arm& arm,
                  const expert_parallel::Mesh& mesh,
                  runlog::Provenance& provenance);

}  // namespace isoloss::train
