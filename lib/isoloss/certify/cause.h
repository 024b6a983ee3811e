// Names why two runs part, by the operations that were recorded of both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/certify/operation_pair.h"
#include "isoloss/operations/operation.h"

namespace isoloss::certify {

// These kinds of causes stand in the JSON (docs/certify.md).
inline constexpr std::string_view kData = "data";
inline constexpr std::string_view kWeights = "weights";
inline constexpr std::string_view kMoments = "moments";
inline constexpr std::string_view kStepCounter = "step_counter";
inline constexpr std::string_view kSchedule = "schedule";
inline constexpr std::string_view kRouterBias = "router_bias";
inline constexpr std::string_view kScaleHistory = "scale_history";
inline constexpr std::string_view kSetting = "setting";
inline constexpr std::string_view kOrderOfSums = "order_of_sums";
inline constexpr std::string_view kSplitOfK = "split_of_k";
inline constexpr std::string_view kAlgorithm = "algorithm";
inline constexpr std::string_view kWrongResult = "wrong_result";
inline constexpr std::string_view kRandomNumbers = "random_numbers";
inline constexpr std::string_view kUnrecorded = "unrecorded_operation";
inline constexpr std::string_view kHiddenState = "hidden_state";
inline constexpr std::string_view kUnknown = "unknown";

struct Cause {
  std::string_view kind;  ///< one of the constants above
  std::string text;       ///< a whole sentence
};

bool Has(const std::vector<Cause>& causes, std::string_view kind);
/// Adds causes of kinds that are not there.
void AddNew(std::vector<Cause> more, std::vector<Cause>& causes);

/// Both files are of one step and rank of two runs. In sentences, `names` are
/// those of the runs.
struct OperationFiles {
  const operations::OperationFile& first;
  const operations::OperationFile& other;
  std::string names[2];
};

/// Compares what the operations of both read of state that lasts longer than a
/// step: weights, states and settings of optimizers, biases of routers, scales
/// of equal tensors.
std::vector<Cause> StateCauses(const OperationFiles& files);

/// Compares what the operations of a step left with what the next step's
/// operations found.
std::vector<Cause> CausesBetween(const operations::OperationFile& before,
                                 const operations::OperationFile& after,
                                 const std::string& name_after);

/// Says why a result differs. `recipe` says how operands are quantised; "": not
/// at all.
Cause CauseOf(const OperationDifference& difference,
              const OperationFiles& files, const std::string& recipe,
              Executor& executor);

}  // namespace isoloss::certify
