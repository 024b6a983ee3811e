// Saves and loads everything on which a run's next step depends, as logical
// tensors. They depend on neither processes nor threads.
//
//   weights.<parameter>, exp_avg.<parameter>, exp_avg_sq.<parameter>   F32
//   expert_bias             F32 [MoE layers, E], if there are such layers
//   amax_history            F32 [steps kept, tensors], of delayed scaling
//   adamw.steps             I64 [1]
//   exchange.bytes_by_pair  I64 [R, R], if anything is counted
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/model/parameters.h"
#include "isoloss/optim/adamw.h"

namespace isoloss::train {

/// Refers to a run's state. `adamw` updates `parameters`, in their order.
struct TrainingState {
  model::ParameterSet& parameters;
  optim::AdamW& adamw;
  MatrixView<float> expert_bias;
  MatrixView<float> amax_history;
  /// Holds the bytes that ranks sent to ranks so far, [R * R], or is empty.
  /// Process 0's counts are saved; all processes get them back.
  std::vector<int64_t>& bytes_by_pair;
  /// Computes with the parameters and moments, which are in its memory.
  Executor& executor;
};

/// Returns the name of the first tensor ("exp_avg_sq.norm.weight") that holds a
/// NaN or an infinity in any process; "" if there is none. Collective.
std::string FirstNonFiniteTensor(const TrainingState& state,
                                 expert_parallel::Mesh& mesh);

/// Writes the state after `step` steps into `checkpoints` (process 0) and
/// returns its digest (all). Collective.
/// Errors   in all processes alike: FormatError if a weight, moment or bias is
///          not finite (the existing checkpoint stays newest), IoError if
///          process 0 can't write; the remaining processes name process 0 as
///          the place to look.
/// Cost     memory for one whole tensor of experts more.
uint64_t SaveTrainingState(int64_t step, const model::ModelConfig& config,
                           TrainingState state, expert_parallel::Mesh& mesh,
                           const std::filesystem::path& checkpoints,
                           std::map<std::string, std::string> facts);

/// Overwrites the state with the checkpoint's; this process's experts are cut
/// out of the whole tensors. Collective. A state that does not fit is left as
/// it was.
/// Errors   FormatError that names the first tensor that is missing, left over
///          or of a different shape; TransportError if processes pass different
///          checkpoints.
void LoadTrainingState(const checkpoint::Checkpoint& checkpoint,
                       const model::ModelConfig& config, TrainingState state,
                       expert_parallel::Mesh& mesh);

}  // namespace isoloss::train
