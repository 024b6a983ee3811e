// Inputs that are broken in one way each, and what the gate says of them.
#pragma once

#include <functional>
#include <limits>
#include <ostream>

#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct BadInput {
  const char* name;
  std::function<void(Runs&)> spoil;
  Outcome outcome;
  const char* check;
  const char* message;
};

inline void PrintTo(const BadInput& input, std::ostream* out) {
  *out << input.name;
}

/// Changes the candidate's run of seed 3.
inline std::function<void(Runs&)> Spoil(
    std::function<void(runlog::RunLog&)> spoil_log) {
  return [=](Runs& runs) { spoil_log(runs[kCandidate3].log); };
}

/// Changes every run of the candidate.
inline std::function<void(Runs&)> SpoilArm(
    std::function<void(runlog::RunLog&)> spoil_log) {
  return [=](Runs& runs) {
    for (auto& run : runs) {
      if (run.log.provenance.arm == "mxfp8") spoil_log(run.log);
    }
  };
}

/// Calls `change` on every column of the log.
template <typename Change>
void ChangeColumns(runlog::StepColumns& steps, Change change) {
  change(steps.step);
  change(steps.tokens_seen);
  change(steps.loss_nats);
  change(steps.grad_norm);
  change(steps.lr);
  change(steps.step_seconds);
  change(steps.tokens_per_second);
  change(steps.expert_load_max_over_mean);
  change(steps.dead_experts);
  change(steps.quantized_gemms);
}

inline void KeepSteps(runlog::RunLog& log, size_t count) {
  ChangeColumns(log.steps, [&](auto& column) { column.resize(count); });
}

inline const BadInput kNotFinite[] = {
    {"AllNan", SpoilArm([](auto& log) {
       for (double& loss : log.steps.loss_nats) loss = kNan;
     }),
     Outcome::kFail, "domains",
     "mxfp8_seed1.h5: /steps/loss_nats is NaN at step 1 (50 of 50 values are "
     "such)"},
    {"BothArmsAllNan",
     [](Runs& runs) {
       for (auto& run : runs) {
         for (double& loss : run.log.steps.loss_nats) loss = kNan;
       }
     },
     Outcome::kFail, "domains",
     "bf16_seed1.h5: /steps/loss_nats is NaN at step 1"},
    {"LastStepNan", Spoil([](auto& log) { log.steps.loss_nats.back() = kNan; }),
     Outcome::kFail, "domains",
     "mxfp8_seed3.h5: /steps/loss_nats is NaN at step 50"},
    {"BaselineNan",
     [](Runs& runs) { runs[kBaseline3].log.steps.loss_nats[6] = kNan; },
     Outcome::kFail, "domains",
     "bf16_seed3.h5: /steps/loss_nats is NaN at step 7"},
    {"Infinity", Spoil([](auto& log) { log.steps.loss_nats[4] = kInf; }),
     Outcome::kFail, "domains", "loss_nats is inf at step 5"},
    {"MinusInfinity", Spoil([](auto& log) { log.steps.loss_nats[4] = -kInf; }),
     Outcome::kFail, "domains", "loss_nats is -inf at step 5"},
    {"ZeroLoss", Spoil([](auto& log) { log.steps.loss_nats[4] = 0; }),
     Outcome::kFail, "domains", "loss_nats is 0 at step 5"},
    {"GradNormNan", Spoil([](auto& log) { log.steps.grad_norm[9] = kNan; }),
     Outcome::kFail, "domains", "grad_norm is NaN at step 10"},
    {"LearningRateNan", Spoil([](auto& log) { log.steps.lr[9] = kNan; }),
     Outcome::kFail, "domains", "lr is NaN at step 10"},
    {"NegativeSeconds",
     Spoil([](auto& log) { log.steps.step_seconds[9] = -1; }), Outcome::kFail,
     "domains", "step_seconds is -1 at step 10"},
    {"ExpertLoadInfinity",
     Spoil([](auto& log) { log.steps.expert_load_max_over_mean[9] = kInf; }),
     Outcome::kFail, "domains", "expert_load_max_over_mean is inf at step 10"},
    {"HeldOutNan", Spoil([](auto& log) { log.eval.loss_nats[1] = kNan; }),
     Outcome::kFail, "domains", "/eval/loss_nats is NaN at step 50"},
    {"SequenceInfinity",
     Spoil([](auto& log) { log.eval.per_sequence_loss_nats[3] = kInf; }),
     Outcome::kFail, "domains", "per_sequence_loss_nats is inf at step 50"},
    {"ParameterNan", Spoil([](auto& log) {
       log.parameters = test_support::SampleParameters(log.steps);
       log.parameters.grad_norm[4] = kNan;
     }),
     Outcome::kFail, "domains", "/parameters/grad_norm is NaN at step 3"},
    {"ParameterUpdateInfinity", Spoil([](auto& log) {
       log.parameters = test_support::SampleParameters(log.steps);
       log.parameters.update_ratio.back() = kInf;
     }),
     Outcome::kFail, "domains", "/parameters/update_ratio is inf at step 50"},
    {"StoppedAtNan", Spoil([](auto& log) {
       KeepSteps(log, 20);
       log.steps.loss_nats.back() = kNan;
       log.provenance.complete = false;
     }),
     Outcome::kFail, "steps",
     "stopped at step 20 of 50 with a loss or gradient norm that is not "
     "finite"},
};

inline const BadInput kWrongSteps[] = {
    {"Truncated", Spoil([](auto& log) { KeepSteps(log, 49); }),
     Outcome::kInvalid, "steps", "ends after step 49 of 50"},
    {"NotComplete", Spoil([](auto& log) { log.provenance.complete = false; }),
     Outcome::kInvalid, "steps", "is not marked as complete"},
    {"Shuffled", Spoil([](auto& log) {
       std::swap(log.steps.step[10], log.steps.step[20]);
     }),
     Outcome::kInvalid, "steps", "step 21 stands where step 11 belongs"},
    {"Duplicated", Spoil([](auto& log) {
       ChangeColumns(log.steps, [](auto& column) {
         column.insert(column.begin() + 5, column[4]);
       });
     }),
     Outcome::kInvalid, "steps", "step 5 occurs twice"},
    {"Missing", Spoil([](auto& log) {
       ChangeColumns(log.steps,
                     [](auto& column) { column.erase(column.begin() + 5); });
     }),
     Outcome::kInvalid, "steps", "step 6 is missing"},
    {"Extra", Spoil([](auto& log) {
       ChangeColumns(log.steps,
                     [](auto& column) { column.push_back(column.back()); });
       log.steps.step.back() = 51;
     }),
     Outcome::kInvalid, "steps", "51 steps, but steps must be 1 to 50"},
    {"EmptyFile", [](Runs& runs) { runs[kCandidate3].log.steps = {}; },
     Outcome::kInvalid, "steps", "0 steps of 50 planned"},
    {"NothingPlanned", SpoilArm([](auto& log) {
       log.provenance.steps_planned = 0;
       log.steps = {};
     }),
     Outcome::kInvalid, "steps", "0 steps of 0 planned"},
    {"ShortColumn", Spoil([](auto& log) { log.steps.loss_nats.pop_back(); }),
     Outcome::kInvalid, "steps", "differ in length"},
    {"ShortOptionalColumn", Spoil([](auto& log) { log.steps.lr.pop_back(); }),
     Outcome::kInvalid, "steps", "differ in length"},
    {"OtherPlan", SpoilArm([](auto& log) {
       KeepSteps(log, 40);
       log.provenance.steps_planned = 40;
       log.eval.step.back() = 40;
     }),
     Outcome::kInvalid, "steps", "steps_planned differs"},
    {"ShortParameters", Spoil([](auto& log) {
       log.parameters = test_support::SampleParameters(log.steps);
       log.parameters.grad_norm.pop_back();
     }),
     Outcome::kInvalid, "steps", "differ in length"},
    {"OtherBatches",
     [](Runs& runs) {
       for (auto& run : runs) test_support::FillBatches(run.log);
       runs[kCandidate3].log.steps.batch_digest[20] = 8;
     },
     Outcome::kInvalid, "steps", "batch_digest differs"},
    {"OtherTokens", Spoil([](auto& log) { ++log.steps.tokens_seen[30]; }),
     Outcome::kInvalid, "steps", "tokens_seen differs"},
    {"TokensDoNotAscend",
     [](Runs& runs) {
       for (auto& run : runs) run.log.steps.tokens_seen.assign(50, 1024);
     },
     Outcome::kInvalid, "steps", "tokens_seen or /eval/step is out of order"},
    {"EvaluationAfterTheEnd",
     [](Runs& runs) {
       for (auto& run : runs) run.log.eval.step.back() = 51;
     },
     Outcome::kInvalid, "steps", "evaluations from 0 to 50"},
    {"EvaluationTwice",
     [](Runs& runs) {
       for (auto& run : runs) run.log.eval.step.front() = 50;
     },
     Outcome::kInvalid, "steps", "evaluations from 0 to 50"},
    {"NoGradNorm", Spoil([](auto& log) { log.steps.grad_norm.clear(); }),
     Outcome::kInvalid, "steps", "the presence of grad_norm differs"},
    {"NoEvaluation", Spoil([](auto& log) { log.eval = {}; }), Outcome::kInvalid,
     "steps", "the set of held-out evaluations differs"},
    {"EarlyEvaluation",
     [](Runs& runs) {
       for (auto& run : runs) run.log.eval.step.back() = 30;
     },
     Outcome::kInconclusive, "held_out", "evaluate within the final window"},
    {"EarlyEvaluationOutsideTheMargin",
     [](Runs& runs) {
       for (auto& run : runs) {
         run.log.eval.step.back() = 30;
         if (run.log.provenance.arm != "mxfp8") continue;
         run.log.eval.loss_nats[1] *= 2;
         for (const size_t i : {2, 3}) {
           run.log.eval.per_sequence_loss_nats[i] *= 2;
         }
       }
     },
     Outcome::kInconclusive, "held_out", "evaluate within the final window"},
};

inline const BadInput kWrongSeeds[] = {
    {"NoRuns", [](Runs& runs) { runs.clear(); }, Outcome::kInvalid, "seeds",
     "arm bf16 has no run, arm mxfp8 has no run"},
    {"NoCandidate", [](Runs& runs) { runs.resize(4); }, Outcome::kInvalid,
     "seeds", "arm bf16 has 1, 2, 3, 4, arm mxfp8 has no run"},
    {"SeedMissing", [](Runs& runs) { runs.pop_back(); }, Outcome::kInvalid,
     "seeds", "arm mxfp8 has 1, 2, 3, but each seed"},
    {"SeedTwice", [](Runs& runs) { runs.push_back(runs.back()); },
     Outcome::kInvalid, "seeds", "arm mxfp8 has 1, 2, 3, 4, 4"},
    {"CopiedSeed",
     [](Runs& runs) {
       for (const size_t i : {kBaseline3, kCandidate3}) {
         runs[i].log.steps = runs[i - 1].log.steps;
       }
     },
     Outcome::kInvalid, "seeds",
     "bf16_seed3.h5: every loss has the bits of bf16_seed2.h5"},
    {"CopiedSeedNotNextToItsOriginal",
     [](Runs& runs) {
       for (const size_t i : {kBaseline3, kCandidate3}) {
         runs[i].log.steps = runs[i - 2].log.steps;
       }
     },
     Outcome::kInvalid, "seeds",
     "bf16_seed3.h5: every loss has the bits of bf16_seed1.h5"},
    {"OneSeed",
     [](Runs& runs) {
       runs = {runs[0], runs[4]};
     },
     Outcome::kInconclusive, "final_window",
     "at least 2 seed pairs are needed: isoloss verify EXPERIMENT --seeds +1; "
     "how many suffice is unknown"},
    {"SwappedArms",
     [](Runs& runs) {
       for (auto& run : runs) run.log.provenance.baseline_arm = "mxfp8";
     },
     Outcome::kInvalid, "seeds", "Swap the two arms"},
};

inline const BadInput kWrongConfiguration[] = {
    {"OtherExperiment",
     Spoil([](auto& log) { log.provenance.experiment_name = "other"; }),
     Outcome::kInvalid, "configuration", "experiment_name is 'other'"},
    {"OtherBaselineArm",
     Spoil([](auto& log) { log.provenance.baseline_arm = "mxfp8"; }),
     Outcome::kInvalid, "configuration", "baseline_arm is 'mxfp8'"},
    {"OtherConfig",
     Spoil([](auto& log) { log.provenance.config_digest = "c2"; }),
     Outcome::kInvalid, "configuration", "config_digest is 'c2'"},
    {"OtherCorpus",
     SpoilArm([](auto& log) { log.provenance.corpus_digest = "d2"; }),
     Outcome::kInvalid, "configuration", "corpus_digest is 'd2'"},
    {"OtherInitialWeights",
     Spoil([](auto& log) { log.provenance.initial_weights_digest = "w9"; }),
     Outcome::kInvalid, "configuration", "initial_weights_digest is 'w9'"},
    {"OtherCommit",
     SpoilArm([](auto& log) { log.provenance.commit = "0123abc-dirty"; }),
     Outcome::kInvalid, "configuration", "commit is '0123abc-dirty'"},
    {"OtherVersion",
     SpoilArm([](auto& log) { log.provenance.tool_version = "isoloss 0.2.0"; }),
     Outcome::kInvalid, "configuration", "tool_version"},
    {"UnrecordedCorpus",
     [](Runs& runs) {
       for (auto& run : runs) run.log.provenance.corpus_digest.clear();
     },
     Outcome::kInvalid, "configuration", "must be recorded and equal"},
};

inline const BadInput kWrongRecipe[] = {
    {"NothingQuantized", SpoilArm([](auto& log) {
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "recipe_ran",
     "mxfp8_seed1.h5: 0 quantised GEMMs ran in step 1, but recipe mxfp8_rceil "
     "asks for 78"},
    {"OneGemmShort",
     Spoil([](auto& log) { log.steps.quantized_gemms[49] = 77; }),
     Outcome::kFail, "recipe_ran", "77 quantised GEMMs ran in step 50"},
    {"NothingPlannedToQuantize", SpoilArm([](auto& log) {
       log.provenance.quantized_gemms_per_step = 0;
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "recipe_ran", "plans 0 quantised GEMMs per step"},
    {"BaselineQuantized",
     [](Runs& runs) { runs[0].log.steps.quantized_gemms[3] = 78; },
     Outcome::kFail, "recipe_ran",
     "bf16_seed1.h5: 78 quantised GEMMs ran in step 4, but recipe bf16"},
    {"NegativeCount",
     [](Runs& runs) {
       runs[0].log.provenance.quantized_gemms_per_step = -1;
       for (int64_t& count : runs[0].log.steps.quantized_gemms) count = -1;
     },
     Outcome::kInvalid, "domains", "attribute quantized_gemms_per_step is -1"},
    {"MoreThanAllGemms", SpoilArm([](auto& log) {
       log.provenance.quantized_gemms_per_step = 97;
       for (int64_t& count : log.steps.quantized_gemms) count = 97;
     }),
     Outcome::kFail, "recipe_ran",
     "plans 97 quantised GEMMs per step and 96 in "
     "all, but /recipe gives formats to 78 of 96"},
    {"NoCount", SpoilArm([](auto& log) { log.steps.quantized_gemms.clear(); }),
     Outcome::kInvalid, "domains", "/steps/quantized_gemms is missing"},
    {"AnotherRecipeResolved", SpoilArm([](auto& log) {
       log.provenance.graph = test_support::SampleGraph("");
     }),
     Outcome::kFail, "recipe_ran", "/recipe gives formats to 0 of 96"},
    {"NoResolvedRecipe", SpoilArm([](auto& log) { log.provenance.graph = {}; }),
     Outcome::kInconclusive, "recipe_ran", "whether recipe mxfp8_rceil"},
    {"IdenticalLosses", Spoil([](auto& log) {
       log.steps.loss_nats =
           test_support::SyntheticRun(false, 3, 0).log.steps.loss_nats;
     }),
     Outcome::kFail, "declared_change",
     "arms bf16 and mxfp8 are identical: every loss is the same with seed 3"},
    {"PerturbedWithTheSameWeights", SpoilArm([](auto& log) {
       log.provenance.perturbation = "one_ulp, draw 1";
     }),
     Outcome::kInvalid, "configuration",
     "perturbed by one_ulp, draw 1 and by nothing, so both must be recorded "
     "and differ"},
    {"PerturbedInOneSeedOnly", Spoil([](auto& log) {
       log.provenance.perturbation = "one_ulp, draw 1";
       log.provenance.initial_weights_digest = "other";
     }),
     Outcome::kInvalid, "declared_change", "an arm has one perturbation"},
    {"SameRecipe", SpoilArm([](auto& log) {
       log.provenance.recipe = "bf16";
       log.provenance.resolved_recipe = test_support::SampleRecipeText("bf16");
       log.provenance.graph = test_support::SampleGraph("");
       log.provenance.quantized_gemms_per_step = 0;
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "declared_change", "recipes bf16 and bf16 give every"},
    {"SameRecipeOfAnotherName", SpoilArm([](auto& log) {
       log.provenance.resolved_recipe = test_support::SampleRecipeText("bf16");
       log.provenance.graph = test_support::SampleGraph("");
       log.provenance.quantized_gemms_per_step = 0;
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "declared_change",
     "recipes bf16 and mxfp8_rceil give every GEMM the same formats"},
    {"MixedArm",
     Spoil([](auto& log) { log.provenance.recipe = "mxfp8_floor"; }),
     Outcome::kInvalid, "declared_change", "but an arm has one recipe"},
    {"MixedTable", Spoil([](auto& log) {
       log.provenance.graph = test_support::SampleGraph("e5m2");
     }),
     Outcome::kInvalid, "declared_change", "but an arm has one recipe"},
    {"SameTableOfAnotherText", SpoilArm([](auto& log) {
       log.provenance.graph = test_support::SampleGraph("");
       log.provenance.quantized_gemms_per_step = 0;
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "declared_change",
     "recipes bf16 and mxfp8_rceil give every GEMM the same formats"},
    {"SameTextWithoutTables",
     [](Runs& runs) {
       for (auto& run : runs) {
         run.log.provenance.graph = {};
         run.log.provenance.resolved_recipe =
             test_support::SampleRecipeText("bf16");
       }
     },
     Outcome::kFail, "declared_change",
     "recipes bf16 and mxfp8_rceil give every GEMM the same formats"},
    {"MixedExchange",
     [](Runs& runs) {
       for (auto& run : runs) run.log.provenance.exchange = "flat";
       runs[kCandidate3].log.provenance.exchange = "node";
     },
     Outcome::kInvalid, "declared_change",
     "rows travelled by node, but in mxfp8_seed1.h5 by flat"},
};

}  // namespace isoloss::gate
