// Planted bugs: known numerical errors that attach to a run through
// train::Seams, so that one can measure what a gate catches. The code that
// trains knows nothing of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/trainer.h"

namespace isoloss::qualification {

/// What a gate should make of it.
enum class Class {
  kBug,                  ///< an error: to be found
  kSpecificationChange,  ///< another recipe than declared, itself legitimate
  kBenign,               ///< other bits of the same mathematics: to be accepted
  kEquivalent,           ///< changes no bit in models of this size (see note)
};
/// "bug", "specification_change", "benign", "equivalent".
std::string_view ClassName(Class kind);

/// Step that a run is at; 0 before the first one.
struct RunClock {
  int64_t step = 0;
};

/// One run, while something is planted in it.
struct MutantContext {
  const train::Experiment& experiment;
  const train::Arm& arm;
  uint64_t seed;
  std::shared_ptr<const RunClock> clock;  ///< for what is planted to keep
  train::Seams& hooks;
};

struct Mutant {
  std::string name;   ///< snake_case, unique
  int catalogue = 0;  ///< kind of error; several mutants can share one;
                      ///< 0: of no kind that was reported or listed
  std::string group;  ///< "scale", "element_cast", …
  Class kind = Class::kBug;
  std::string what;  ///< the error, in one sentence
  std::string link;  ///< who reported it; "" if nobody did in public
  /// Why it is what it is, e.g. changes no bit here; may be empty.
  std::string note = {};
  /// First step whose numbers it can change.
  int64_t onset = 1;
  /// From there on it does something at least once in so many steps.
  int64_t period = 1;
  /// It changes no bit of a run of this size; structured inputs of the oracle's
  /// probe show it.
  bool only_in_probes = false;
  /// It changes products with a quantised operand; an arm must have some.
  bool quantized_products = false;
  /// One of the two. Whatever it does is a function of the experiment, the
  /// seed, the step and the numbers that it meets.
  std::function<void(MutantContext& context)> plant = {};
  /// For a log as a faulty tool would have left it.
  std::function<void(runlog::RunLog& log)> edit_log = {};
};

/// All mutants, group by group in the order of the catalogue; of benign
/// variants one of each family.
std::span<const Mutant> AllMutants();

/// Errors   ConfigError that suggests the nearest name.
Mutant MutantByName(std::string_view name);

/// Hooks of a run of `arm` in which `mutant` is at work, with all that they
/// need. For one run: what a mutant remembers must not go on in another. Those
/// that edit a log leave the run alone.
/// Errors   ConfigError if the mutant is about quantised products and the
///          arm's recipe quantises nothing.
train::RunHooks Plant(const Mutant& mutant, const train::Experiment& experiment,
                      const train::Arm& arm, uint64_t seed);

/// ensembles::MakeBenignVariant as a mutant of class benign.
Mutant BenignMutant(size_t index);

}  // namespace isoloss::qualification
