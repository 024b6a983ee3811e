#include "isoloss/treatments/gradient_error.h"

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "isoloss/base/matrix.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/logged_learner.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/treatments/chosen_experts.h"

namespace isoloss::treatments {
namespace {

using Gradient = std::vector<float>;

/// Holds an arm at some step, and the gradient of its last step.
class GradientArm {
 public:
  GradientArm(const train::Experiment& experiment, const train::Arm& arm,
              uint64_t seed, const corpus::Corpus& corpus, Executor& executor,
              train::RunHooks hooks)
      : hooks_(WithGradient(std::move(hooks), gradient_)),
        mesh_(train::MakeMesh(experiment, arm, /*reason_folder=*/{}, executor)),
        learner_(experiment, arm, seed, corpus, executor, hooks_, {}, *mesh_) {}
  GradientArm(const GradientArm&) = delete;
  GradientArm& operator=(const GradientArm&) = delete;

  train::LoggedLearner& learner() { return learner_; }
  const Gradient& gradient() const { return gradient_; }
  bool Step(int64_t step) {
    runlog::RunLog rows;
    return learner_.Step(step, rows);
  }

 private:
  static train::RunHooks WithGradient(train::RunHooks hooks,
                                      Gradient& gradient) {
    hooks.after_backward = [&gradient](int64_t, model::ParameterSet& set) {
      gradient.clear();
      for (const model::Parameter& parameter : set.parameters()) {
        for (size_t row = 0; row < parameter.values.rows(); ++row) {
          const float* values = parameter.values.Row(row);
          gradient.insert(gradient.end(), values,
                          values + parameter.values.cols());
        }
      }
    };
    return hooks;
  }

  Gradient gradient_;
  const train::RunHooks hooks_;
  std::unique_ptr<expert_parallel::Mesh> mesh_;
  train::LoggedLearner learner_;
};

double RelativeDifference(const Gradient& arm, const Gradient& reference) {
  double errors = 0;
  double squares = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const auto r = static_cast<double>(reference[i]);
    const double error = static_cast<double>(arm[i]) - r;
    errors += error * error;
    squares += r * r;
  }
  return errors == 0 ? 0 : std::sqrt(errors / squares);
}

}  // namespace

std::vector<std::vector<double>> GradientErrors(
    const train::Experiment& experiment, const train::Arm& reference,
    std::span<const train::Arm> arms, uint64_t seed,
    const corpus::Corpus& corpus, std::span<const int64_t> steps,
    Executor& executor, const GradientErrorHooks& hooks) {
  train::Experiment whole = experiment;
  train::TakeWholeBatches(whole);
  ChosenExperts chosen;
  train::RunHooks listening;
  listening.before_step = [&](int64_t) { chosen.Clear(); };
  listening.on_routing = [&](int64_t, std::string_view,
                             MatrixView<const int32_t> ids) {
    chosen.Add(ids);
  };
  train::RunHooks replaying;
  replaying.routing = &chosen;
  GradientArm teacher(whole, reference, seed, corpus, executor, listening);
  // The keeper holds the teacher's state before a step of its own.
  GradientArm keeper(whole, reference, seed, corpus, executor, {});
  std::vector<std::vector<double>> errors(arms.size());
  const size_t of = static_cast<size_t>(steps.empty() ? 0 : steps.back()) +
                    steps.size() * arms.size();
  size_t done = 0;
  const auto tell = [&] {
    if (hooks.on_progress) hooks.on_progress(++done, of);
    return hooks.stop == nullptr || !hooks.stop->load();
  };
  int64_t step = 0;
  for (const int64_t compared : steps) {
    while (++step < compared) {
      if (!tell() || !teacher.Step(step)) return errors;
    }
    keeper.learner().GoOnFrom(teacher.learner().State());
    if (!tell() || !teacher.Step(step)) return errors;
    for (size_t i = 0; i < arms.size(); ++i) {
      if (!tell()) return errors;
      GradientArm pupil(whole, arms[i], seed, corpus, executor, replaying);
      pupil.learner().GoOnFrom(keeper.learner().State());
      pupil.Step(step);
      errors[i].push_back(
          RelativeDifference(pupil.gradient(), teacher.gradient()));
    }
  }
  return errors;
}

}  // namespace isoloss::treatments
