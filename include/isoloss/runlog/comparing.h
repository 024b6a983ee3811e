// A column states with these enums how it is compared with the same column of
// another log (shared_columns.h).
#pragma once

namespace isoloss::runlog {

/// Gives a column its turn among those of one step, in the order of
/// computation. The column with the first turn that differs is named.
enum class Turn {
  kDigest,  ///< of a tensor
  // A tolerance is applied to the following statistics of a tensor, in this
  // order.
  kNorm,
  kMean,
  kPeak,
  kSpread,
  kError,
  kUnderflows,
  kSaturation,
  kLeastScale,
  kLargestScale,
  // The following columns belong to a step; a tolerance is applied to all but
  // kRouting.
  kRouting,
  kLoss,
  kGradients,  ///< of each parameter
  kGradient,   ///< of all
  kUpdates,
  // No tolerance is applied from here on.
  kBias,
  kMeasured,  ///< what else was recorded
};

/// A tolerance is a share of this quantity, which is never less than the larger
/// value, or than 100 for a percentage. Whole numbers agree only if they are
/// equal.
enum class Scale {
  kOwn,         ///< the larger value
  kMagnitudes,  ///< sum of magnitudes of the tensor's elements
  kRms,         ///< root mean square of the tensor's elements
  kRow,         ///< the largest magnitude of the step's row
};

/// Says on what a column depends besides the training.
enum class Scope {
  kTraining,  ///< nothing
  kSlots,     ///< the order of a token's slots
  kMesh,      ///< which ranks the rows travel between
};

}  // namespace isoloss::runlog
