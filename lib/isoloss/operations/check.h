// Lets the oracle check operations of any trainer.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/operations/arithmetic_search.h"
#include "isoloss/operations/explanation.h"
#include "isoloss/operations/mesh.h"
#include "isoloss/operations/operation.h"
#include "isoloss/operations/product.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

struct CheckOptions {
  /// These patterns replace the recipe's: modules that are quantised, and
  /// modules that are not. Empty: the recipe's patterns hold. `=NAME` matches
  /// the module NAME alone.
  std::vector<std::string> include = {};
  std::vector<std::string> exclude = {};
  /// Sums must be FP32 in some order; else the tensor cores are found that
  /// added them up, and results must have their bits.
  bool demands_fp32 = false;
  /// Is told what is going on, and how much of all is done; null means that
  /// nobody asks. Threads may call it, one at a time.
  std::function<void(const char* what, size_t done, size_t all)> progress =
      nullptr;
};

/// One operation comes with everything that is known about it.
struct OperationCase {
  const Operation& operation;
  /// The module's same operation, one step earlier; null if it is not known.
  const Operation* previous;
  /// This is the module's previous call in a step with several; else null.
  const Operation* call_before = nullptr;
  /// Updates of a linear module's weight: that of the step before and, if there
  /// is only one, that of this step; null if it is not known.
  const Operation* update_before = nullptr;
  const Operation* update_here = nullptr;
  /// The update of this step follows the operation.
  bool update_is_later = false;
  /// Returns the module's calls so many steps before; null: nobody knows them.
  std::function<std::vector<const Operation*>(int64_t steps)> earlier = nullptr;
  /// Returns the module's calls so many steps before on all other ranks; of
  /// this step, the same call. Nothing if a rank's call is missing; null:
  /// nobody knows them.
  std::function<std::optional<std::vector<const Operation*>>(int64_t steps)>
      on_other_ranks = nullptr;
  std::set<RankShare> shares = {};  ///< of the rank that wrote the file
  int64_t step = 1;
  /// The file's mesh, and its number of ranks, say where sums may have parts.
  std::span<const MeshAxis> mesh = {};
  int64_t ranks = 1;
  std::string where;  ///< for messages
  size_t file;
  size_t index;
};

/// Returns an operation of a file, as if nothing else were known of the run.
/// `file_number` is the file's place among others.
OperationCase CaseOf(const OperationFile& file, size_t index,
                     size_t file_number = 0);

/// A linear module is quantised or not.
struct ModuleChoice {
  std::string module;
  bool quantized = false;
  std::string reason;  ///< "included by `attention`"
  /// Some pattern decides; else the module is what the patterns leave over.
  bool is_named = false;
  /// The recipe gives this module these formats.
  precision::LinearPrecision precision = {};
};

/// Decides for all linear modules of the files. A module that holds codes
/// always gets what the recipe gives. If no pattern of the recipe matches any
/// module of the files, all are quantised but those that the recipe excludes.
class ModuleChoices {
 public:
  /// Errors   ConfigError if `options` have a pattern that matches no linear
  ///          module.
  ModuleChoices(const std::vector<OperationFile>& files,
                const precision::Recipe& recipe, const CheckOptions& options);

  const ModuleChoice& Of(const Operation& operation) const;
  /// Choices are sorted by name.
  const std::vector<ModuleChoice>& all() const { return choices_; }
  /// Decides by patterns alone, even if the module holds codes.
  ModuleChoice ByPatterns(const std::string& module) const;
  /// Each remark is a sentence about a pattern that matches several modules, or
  /// parts of words.
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  ModuleChoice Choose(const std::string& module, bool has_codes) const;
  void CheckPatterns(const char* option,
                     const std::vector<std::string>& patterns);
  void RemarkOn(const char* whose, const std::string& pattern, bool is_option);

  const precision::Recipe& recipe_;
  const CheckOptions& options_;
  bool patterns_match_ = false;
  std::vector<ModuleChoice> choices_;
  std::vector<std::string> remarks_;
};

/// Compares every tensor that an operation made with its due value by the
/// operation's own inputs. Files are of one run; order does not matter.
/// Operands that are rounded at random, or by scales that nobody can compute,
/// need their codes; without them, findings say what was not judged.
/// Errors   those of ModuleChoices; FormatError for two files of one step and
/// rank, or a tensor of a
///          type that has no grid.
/// Cost     that of the products; a wrong tensor takes some fifty times that.
std::vector<Finding> CheckOperations(const std::vector<OperationFile>& files,
                                     const precision::Recipe& recipe,
                                     const CheckOptions& options,
                                     Executor& executor);

/// An open point is something that files hold and no finding judges, or that
/// contradicts the files.
struct OpenPoint {
  size_t file = 0;
  std::string module = {};  ///< "": the point is about the whole file
  std::string text = {};    ///< a sentence without full stop
  bool forbids_pass = false;
};

/// Lists what the recorder left out; results whose inputs are missing; rows of
/// no group; state that two consecutive steps of a rank do not allow to
/// compare; skipped steps without a reason; replicas with one parameter and two
/// gradients.
std::vector<OpenPoint> OpenPointsOf(const std::vector<OperationFile>& files);

/// Returns the names of an update of a linear module's parameter `weight`.
std::vector<std::string> UpdateNamesOf(const std::string& linear_module);
/// Returns what an update's state is called: `exp_avg` if the file has
/// `exp_avg_before` and `exp_avg_after`. The last one is the parameter.
std::span<const char* const> StateStems(const Operation& update);
/// Returns why a tensor can't be compared with what an update left, as an end
/// of a sentence; "": it can be.
std::string WhyNotComparable(const Floats& found, const Floats& after);

// Each of these functions is for operations of one type.
/// A linear module has its own precision, or that of the recipe if its products
/// are quantised.
struct LinearRule {
  const precision::LinearPrecision& precision;
  const precision::LinearPrecision& recipe;
};
/// Returns the left and the right operand.
std::span<const LinearOperand, 2> OperandsOf(precision::GemmRole role);
/// Returns "output", "grad_input" or "grad_weight".
const char* ResultName(precision::GemmRole role);
/// Returns the products whose results are recorded, in the order of fprop,
/// dgrad and wgrad.
std::vector<Product> LinearProductsOf(const OperationCase& given,
                                      const LinearRule& rule);
/// `sums` belong to LinearProductsOf; empty means that they are not known.
void CheckLinear(const OperationCase& given, const LinearRule& rule,
                 std::span<const SumsOfProduct> sums,
                 std::vector<Finding>& findings);
/// Compares scores with those of the logits, if there are logits.
void CheckScores(const OperationCase& given, std::vector<Finding>& findings);
void CheckRouter(const OperationCase& given, std::vector<Finding>& findings);
void CheckDispatch(const OperationCase& given, std::vector<Finding>& findings);
/// `group_ends` are the ends of the groups of experts that made the rows; null
/// if they are not known.
void CheckCombine(const OperationCase& given, const Integers* group_ends,
                  std::vector<Finding>& findings);
void CheckAdamW(const OperationCase& given, std::vector<Finding>& findings);
/// Returns the ways in which torch rounds each step of an update to the type of
/// the tensor that it changes. If all types are FP32, there are none.
std::vector<Trial> TrialsOfRoundedAdamW(const OperationCase& given,
                                        const std::string& part);
/// Returns whether the update says that its last rounding was at random.
bool IsRoundedAtRandom(const Operation& update);
void CheckMuon(const OperationCase& given, std::vector<Finding>& findings);
/// Compares the weight that a linear module read with two parameters: after the
/// update of the step before, and before that of this step. They must be equal
/// to the bit after rounding to the weight's type.
void CheckWeight(const OperationCase& given, std::vector<Finding>& findings);
/// Compares state before a step bit for bit with the state after the step
/// before, and checks the count of the bias correction.
void CheckStateBetweenSteps(const OperationCase& given,
                            std::vector<Finding>& findings);
/// Compares the model's copy of a master with the parameter after the step: it
/// is rounded to nearest, or to one of both neighbours in due shares.
void CheckCopy(const OperationCase& given, std::vector<Finding>& findings);
/// Checks that a step which the optimizer had to skip changes nothing.
void CheckSkippedStep(const OperationCase& given,
                      std::vector<Finding>& findings);
void CheckLoss(const OperationCase& given, std::vector<Finding>& findings);

/// Makes a finding about that operation.
Finding FindingOf(const OperationCase& given, const std::string& part,
                  const std::string& kind, oracle::Comparison comparison);

}  // namespace isoloss::operations
