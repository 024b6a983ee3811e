// The oracle on operations of any trainer.
#pragma once

#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/operations/explanation.h"
#include "isoloss/operations/operation.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

struct CheckOptions {
  /// Patterns of modules that are quantised and that are not, in place of the
  /// recipe's; empty: the recipe's. `=NAME` matches the module NAME alone.
  std::vector<std::string> include = {};
  std::vector<std::string> exclude = {};
};

/// One operation with what is known of it besides.
struct OperationCase {
  const Operation& operation;
  /// The same module's, one step earlier; null if it is not known.
  const Operation* previous;
  /// The call before of a module that a step calls several times; else null.
  const Operation* call_before = nullptr;
  /// Of a linear module's weight: the step before's update and, if there is
  /// one only, that of this step; null if it is not known.
  const Operation* update_before = nullptr;
  const Operation* update_here = nullptr;
  /// The update of this step comes after the operation.
  bool update_is_later = false;
  std::string where;  ///< for messages
  size_t file;
  size_t index;
};

/// Whether a linear module is quantised.
struct ModuleChoice {
  std::string module;
  bool quantized = false;
  std::string reason;  ///< "included by `attention`"
  /// Those that the recipe gives this module.
  precision::LinearPrecision precision = {};
};

/// Decides for all linear modules of the files. A module that holds codes
/// always gets what the recipe gives. A recipe of whose patterns none names any
/// module of the files quantises all but those that it excludes.
class ModuleChoices {
 public:
  /// Errors   ConfigError for a pattern of `options` that matches no linear
  ///          module.
  ModuleChoices(const std::vector<OperationFile>& files,
                const precision::Recipe& recipe, const CheckOptions& options);

  const ModuleChoice& Of(const Operation& operation) const;
  /// By name.
  const std::vector<ModuleChoice>& all() const { return choices_; }
  /// Sentences about patterns that match several modules.
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  ModuleChoice Choose(const std::string& module, bool has_codes) const;
  void CheckPatterns(const char* option,
                     const std::vector<std::string>& patterns);

  const precision::Recipe& recipe_;
  const CheckOptions& options_;
  bool patterns_match_ = false;
  std::vector<ModuleChoice> choices_;
  std::vector<std::string> remarks_;
};

/// Every tensor that each operation of the files made, against what it should
/// be of the operation's own inputs. Files are of one run; order does not
/// matter.
/// Errors   ConfigError for a recipe that draws random bits or looks back,
///          which nobody recorded, and those of ModuleChoices; FormatError for
///          two files of one step and rank, or a tensor of a type that has no
///          grid.
/// Cost     that of the products, and, of a tensor that has others, some fifty
///          times as much.
std::vector<Finding> CheckOperations(const std::vector<OperationFile>& files,
                                     const precision::Recipe& recipe,
                                     const CheckOptions& options,
                                     Executor& executor);

/// Something that files hold and no finding judges, or that speaks against
/// them.
struct OpenPoint {
  size_t file = 0;
  std::string module = {};  ///< "": it is of the whole file
  std::string text = {};    ///< a sentence without full stop
  bool forbids_pass = false;
};

/// What the recorder left out; results whose inputs are missing; rows of no
/// group; state that two consecutive steps of a rank do not allow to compare;
/// skipped steps without a reason; replicas with one parameter and two
/// gradients.
std::vector<OpenPoint> OpenPointsOf(const std::vector<OperationFile>& files);

/// The name of an update of a linear module's parameter `weight`.
std::vector<std::string> UpdateNamesOf(const std::string& linear_module);
/// Why a tensor can't be compared with what an update left, as an end of a
/// sentence; "": it can be.
std::string WhyNotComparable(const Floats& found, const Floats& after);

// Of one type each.
void CheckLinear(const OperationCase& given,
                 const precision::LinearPrecision& precision,
                 const precision::LinearPrecision& recipe,
                 std::vector<Finding>& findings);
/// Scores of the logits, if there are logits.
void CheckScores(const OperationCase& given, std::vector<Finding>& findings);
void CheckRouter(const OperationCase& given, std::vector<Finding>& findings);
void CheckDispatch(const OperationCase& given, std::vector<Finding>& findings);
/// `group_ends`: of the experts that made the rows; null if nobody knows.
void CheckCombine(const OperationCase& given, const Integers* group_ends,
                  std::vector<Finding>& findings);
void CheckAdamW(const OperationCase& given, std::vector<Finding>& findings);
/// The ways in which torch rounds each step of an update whose tensors are all
/// of one type that is not FP32; none of other ones.
std::vector<Trial> TrialsOfRoundedAdamW(const OperationCase& given,
                                        const std::string& part);
/// The weight that a linear module read against the parameter after the update
/// of the step before and before that of this step, to the bit after rounding
/// to the weight's type.
void CheckWeight(const OperationCase& given, std::vector<Finding>& findings);
/// State before a step against that after the step before, bit for bit, and the
/// count of the bias correction.
void CheckStateBetweenSteps(const OperationCase& given,
                            std::vector<Finding>& findings);
/// A step that the optimizer was to skip leaves all as it was.
void CheckSkippedStep(const OperationCase& given,
                      std::vector<Finding>& findings);
void CheckLoss(const OperationCase& given, std::vector<Finding>& findings);

/// A finding of that operation.
Finding FindingOf(const OperationCase& given, const std::string& part,
                  const std::string& kind, oracle::Comparison comparison);

}  // namespace isoloss::operations
