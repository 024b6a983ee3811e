// Computes a step of torch.optim.AdamW, right or with a mistake.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::operations {

/// One update has these numbers and, if a mistake was made, these changes.
struct AdamWRule {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double step = 1;  ///< of bias correction
  bool corrects_bias = true;
  /// Corrections are computed in FP32, as torch does on a GPU to capture them.
  bool corrects_in_fp32 = false;
  bool decay_in_gradient = false;
  bool decay_after = false;  ///< the decay is that of the updated parameter
  bool eps_in_root = false;
  bool eps_uncorrected = false;    ///< added before the root is corrected
  bool swaps_corrections = false;  ///< the moments swap their corrections
  bool decay_without_lr = false;
  bool old_moments = false;  ///< the step uses the moments from before it
  double gradient_factor = 1.0;
  double step_factor = 1.0;
  bool zero_moments = false;
  bool skips = false;                  ///< nothing changes
  const Operation* moments = nullptr;  ///< has them; null: the checked one
  /// The step reads these moments as they were stored; null: as they were
  /// computed.
  const Floats* stored_first = nullptr;
  const Floats* stored_second = nullptr;
};
AdamWRule AdamWRuleOf(const Operation& operation);

/// The numbers are of one element of each tensor, at the same place.
struct Element {
  double p;
  double g;
  double m;
  double v;
  // These are the stored moments, if the rule has any.
  double first = 0;
  double second = 0;
};

struct Updated {
  oracle::Estimate first;
  oracle::Estimate second;
  oracle::Estimate parameter;
};

/// These are 1 - beta^t of both moments, one number for a whole tensor.
struct Corrections {
  explicit Corrections(const AdamWRule& rule);

  double first = 1;
  double second = 1;
  /// The step is off by this fraction because of their roundings.
  double slack = 0;
};

Updated Update(const AdamWRule& rule, const Corrections& correction,
               const Element& element);

enum class Part { kFirst, kSecond, kParameter };
struct PartText {
  Part part;
  const char* tensor;
  oracle::Estimate Updated::*estimate;
};
inline constexpr PartText kParts[] = {
    {Part::kFirst, "exp_avg_after", &Updated::first},
    {Part::kSecond, "exp_avg_sq_after", &Updated::second},
    {Part::kParameter, "parameter_after", &Updated::parameter}};

/// Returns the numbers of element `i`.
Element ElementOf(const Operation& operation, const AdamWRule& rule, size_t i);

oracle::Comparison Compare(const OperationCase& given, const PartText& part,
                           const AdamWRule& rule);

/// Calls use(name, sentence, rule) with each mistake that the rule may have.
using UseAdamWMistake = std::function<void(
    const char* name, const char* sentence, const AdamWRule& altered)>;
void ForEachAdamWMistake(const OperationCase& given, const AdamWRule& rule,
                         const UseAdamWMistake& use);
/// Returns the rule, then that of a step which reads moments as they were
/// stored in fewer bits than FP32 has.
std::vector<AdamWRule> WaysOf(const OperationCase& given,
                              const AdamWRule& rule);
/// Returns whether the part is a parameter of few bits that is rounded at
/// random. Of an FP32 master, only the model's copy is.
bool IsRandomParameter(const Operation& operation, const PartText& part);
/// Compares such a parameter with its neighbours. If roundings do not fit, no
/// element is right.
oracle::Comparison CompareRandom(const OperationCase& given,
                                 const AdamWRule& rule);
/// Judges a parameter of few bits that was rounded at random: each element must
/// be a neighbour of its estimate, and roundings must fit.
void CheckRandomParameter(const OperationCase& given, const AdamWRule& rule,
                          std::vector<Finding>& findings);
/// Returns the trial whether a parameter was rounded at random although the
/// file does not say so.
Trial TrialOfRandomParameter(const OperationCase& given, const AdamWRule& rule);
/// Compares codes and scales of a moment: scales with the maxima of the moment,
/// codes with the moment over the recorded scales.
void CheckStoredMoment(const OperationCase& given, const PartText& part,
                       const AdamWRule& rule, std::vector<Finding>& findings);

/// Returns the mistakes whose size the tensors themselves tell.
std::vector<Trial> FitsOfAdamW(const OperationCase& given, const PartText& part,
                               const AdamWRule& rule);

}  // namespace isoloss::operations
