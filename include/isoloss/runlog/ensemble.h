// A null ensemble holds many runs that are known to be good, and is the only
// source of the limits. On disk it is one HDF5 file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/hdf5/read_limit.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

inline constexpr int64_t kEnsembleSchemaVersion = 1;

/// Says in what the members of an ensemble differ from the reference.
enum class EnsembleKind {
  kBenign,  ///< one recipe; order of summation, weights perturbed at 1 ulp
  /// Each pair has one seed: the baseline, and the candidate's recipe with the
  /// products that its declaration predicts (kPredicted).
  kSeeds,
};
std::string_view EnsembleKindName(EnsembleKind kind);  ///< "benign", "seeds"

/// Members of kSeeds have this perturbation: products are the oracle's own, so
/// that no code of the candidate sets the limits by which it is judged
/// (step_checks/predicted_products.h).
inline constexpr const char* kPredicted = "predicted";

/// One good run is a member. kBenign compares it with the unperturbed run of
/// its seed, kSeeds compares the candidate with the baseline of its seed.
struct EnsembleMember {
  std::string perturbation = {};  ///< "reverse_k", …; kSeeds: kPredicted
  int64_t seed = 0;
  /// These members hold steps 1 to E of the run and of the run with which it is
  /// compared.
  StepColumns steps = {};
  StepColumns reference_steps = {};
  ParameterColumns parameters = {};
  ParameterColumns reference_parameters = {};
  /// kSeeds compares the candidate with the baseline by a teacher-forced probe.
  PrecisionColumns precision = {};
  RoutingFlipColumns routing_flips = {};
};

struct Ensemble {
  EnsembleKind kind = EnsembleKind::kBenign;
  /// Attributes and steps of the ensemble's file follow this version of the run
  /// logs' layout.
  int64_t run_schema_version = kSchemaVersion;
  /// Describes the runs from which the ensemble was made; it holds for runs
  /// with the same names, recipe, config_digest and numerics_digest.
  Provenance provenance;
  Provenance reference_provenance;
  std::vector<std::string> tensors;  ///< that `precision` refers to
  std::vector<EnsembleMember> members;
  /// ReadEnsemble sets this digest of all of the above but clocks, 16
  /// hexadecimal digits. Values that are empty or 0 do not change it, so that
  /// later versions may add columns.
  std::string digest;
  hdf5::ReadCharge charge = {};
};

/// Errors   as WriteProbeLog; ShapeError too if members do not record the same
///          columns, parameters or tensors.
void WriteEnsemble(const Ensemble& ensemble, const std::filesystem::path& path);

/// Errors   as ReadProbeLog; FormatError too if the digest does not fit.
Ensemble ReadEnsemble(const std::filesystem::path& path);

}  // namespace isoloss::runlog
