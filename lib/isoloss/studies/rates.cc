// isoloss study rates: finds the learning rate at which the baseline ends with
// the least held-out loss, for a verdict that rests on it.

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/document/picture.h"
#include "isoloss/estimators/size_text.h"
#include "isoloss/studies/experiment_file.h"
#include "isoloss/studies/rate_sweep.h"
#include "isoloss/studies/rung.h"
#include "isoloss/studies/study.h"
#include "isoloss/treatments/rung_model.h"

namespace isoloss::studies {
namespace {

using document::Document;
using system::ExitCode;

/// Holds a sweep, and what an experiment is to say of it.
struct RatesResult {
  const train::Experiment& experiment;
  bool scaled;  ///< the model was given another size
  const SweptRates& swept;
  const train::TuningConfig& tuning;
};

std::string LossText(double nats) {
  return std::isfinite(nats) ? fmt::format("{:.4f}", nats) : "diverged";
}

/// Says what the experiment is to do about its rate.
std::string Advice(const RatesResult& result) {
  const auto optimum = result.swept.Optimum();
  if (!optimum) {
    return "Training diverged at every rate. Lower train.lr and sweep again.";
  }
  const double rate = result.experiment.train.lr;
  const double best = result.swept.rates[optimum->best];
  if (!optimum->bracketed) {
    return fmt::format(
        "The best rate, {:g}, is the outermost one of {} that were tried, so "
        "the optimum is not known. {} and sweep again, in another folder.",
        best, result.swept.rates.size(),
        result.scaled ? "Set train.lr to the best rate of the experiment's own "
                        "size"
                      : "Set train.lr to it");
  }
  std::string text = fmt::format("The optimum lies near {:.3g}", optimum->rate);
  if (const auto spread = result.swept.Spread()) {
    text += fmt::format(" ({:.3g} to {:.3g} by single seeds)", spread->first,
                        spread->second);
  }
  if (result.scaled) {
    return text +
           ". The rates of `study ladder` follow from this sweep and that of "
           "the experiment's own size.";
  }
  const double loss =
      stats::LossAtRate(result.swept.rates, result.swept.Means(), rate)
          .value_or(std::nan(""));
  if (rate == best) return text + ". train.lr is the best rate that was tried.";
  return fmt::format(
      "{}. The best rate that was tried, {:g}, is {:g} times train.lr and "
      "{:.1f} % better: set train.lr to it.",
      text, best, best / rate,
      100 * (1 - result.swept.Means()[optimum->best] / loss));
}

Document RateDocument(const SweptRates& swept, size_t place, double train_lr) {
  const double mean = swept.Means()[place];
  Document document;
  document.Put("rate", swept.rates[place]);
  document.Put("held_out_nats", mean);
  document.Put("by_seed_nats", swept.losses[place]);
  std::string seeds;
  for (const double loss : swept.losses[place]) seeds += " " + LossText(loss);
  document.Say(fmt::format("x {:<6.4g} {:<10.4g} {:>9} {}",
                           swept.rates[place] / train_lr, swept.rates[place],
                           LossText(mean), seeds),
               2);
  return document;
}

Document RatesDocument(const RatesResult& result) {
  const SweptRates& swept = result.swept;
  const auto optimum = swept.Optimum();
  Document document;
  document.Put("schema_version", 1);
  document.Put("experiment", result.experiment.name);
  document.Put("baseline", result.experiment.arms.front().name);
  document.Put("parameters",
               train::EstimatedParameters(result.experiment.model));
  document.Put("train_lr", result.experiment.train.lr);
  document.Put("seeds", swept.seeds);
  document.Put("configuration", result.tuning.configuration);
  document.Put("bracketed", optimum && optimum->bracketed);
  document.Put("best_rate", optimum
                                ? document::Value(swept.rates[optimum->best])
                                : document::Value());
  const auto spread = swept.Spread();
  if (optimum && spread) {
    document.PutInterval("optimum", optimum->rate, spread->first,
                         spread->second);
  } else {
    document.Put("optimum", {});
  }
  document.Say(
      fmt::format("Held-out loss of {} in nats after {} steps: mean over {} "
                  "seeds, and each",
                  result.experiment.arms.front().name,
                  result.experiment.train.steps, swept.seeds.size()));
  std::vector<size_t> places(swept.rates.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  document.PutEach("rates", places, [&](size_t place) {
    return RateDocument(swept, place, result.experiment.train.lr);
  });
  document.Say("");
  document.Say(Advice(result));
  return document;
}

document::Picture RatesPicture(const RatesResult& result) {
  document::PicturePanel panel{
      .x = {.scale = document::SvgAxis::Scale::kLog,
            .widen = 0.05,
            .label = [](double rate) { return fmt::format("{:g}", rate); },
            .title = "learning rate"},
      .y = {.widen = 0.1,
            .label = [](double loss) { return fmt::format("{:g}", loss); }},
      .rules = {{.at = result.experiment.train.lr, .vertical = true}}};
  document::PicturePath means{.points = {}, .colour = document::colour::kBlue};
  const std::vector<double> mean = result.swept.Means();
  for (size_t i = 0; i < mean.size(); ++i) {
    if (!std::isfinite(mean[i])) continue;
    means.points.push_back({result.swept.rates[i], mean[i]});
    for (const double loss : result.swept.losses[i]) {
      panel.marks.push_back({.x = result.swept.rates[i],
                             .y = loss,
                             .colour = document::colour::kBlue});
    }
  }
  if (means.points.empty()) panel.instead = "Training diverged at every rate.";
  panel.paths.push_back(std::move(means));
  return {.title = fmt::format("Held-out loss of {} in nats, by learning rate",
                               result.experiment.arms.front().name),
          .parts = {std::move(panel), document::PictureText{Advice(result)}},
          .width = 900};
}

class Rates : public Study {
 public:
  std::vector<Option> Options() override {
    std::vector<Option> options = arguments_.Options(
        "Seeds of each rate, which the experiment does not train (default: 2)",
        "Write the table into the experiment file, in place of an earlier one");
    options.push_back(
        {.name = "--parameters",
         .value = &millions_,
         .help = "Sweep a model of so many million parameters, as a size of "
                 "`study ladder`, for [tuning.scaled] (default: the "
                 "experiment's own)",
         .least = 1e-6,
         .most = 1e6});
    return options;
  }

  Plan MakePlan(const Request& request) override {
    experiment_ = arguments_.Load("rates");
    std::string kind = "rates";
    if (millions_) {
      kind += "-" + estimators::NumberText(ScaledParameters());
      Scale();
    }
    Plan plan =
        PlanRates(experiment_, arguments_.seeds,
                  FolderOfStudy(experiment_.name, kind, false, request.out));
    if (arguments_.write) CheckFile();
    if (request.estimate) EstimateCosts(plan.cells);
    return plan;
  }

  std::string Describe(const Plan& plan) const override {
    return fmt::format(
        "{} rates from {:g} to {:g} x {} seeds of {} steps of {} with {} "
        "parameters: {}. Where the best lies at an edge, another rate "
        "follows.\n",
        plan.cells.size(), plan.cells.front().experiment.train.lr,
        plan.cells.back().experiment.train.lr, arguments_.seeds,
        experiment_.train.steps, experiment_.arms.front().name,
        estimators::NumberText(train::EstimatedParameters(experiment_.model)),
        CostText(plan));
  }

  std::optional<Answer> Judge(const Plan& plan, bool may_train) override {
    const auto swept = SweepRates(plan, may_train);
    if (!swept) return std::nullopt;
    const train::TuningConfig tuning = TuningOf(*swept, experiment_);
    const std::string table = Table(tuning);
    const RatesResult result{experiment_, millions_.has_value(), *swept,
                             tuning};
    const auto optimum = swept->Optimum();
    const bool found = optimum && optimum->bracketed;
    Document document = RatesDocument(result);
    if (arguments_.write && found) {
      WriteFileAtomically(experiment_.path,
                          WithTuning(experiment_.path, table));
    } else if (arguments_.write) {
      document.Say("The experiment file stays as it is.");
    }
    return Answer{.code = found ? ExitCode::kPass : ExitCode::kInconclusive,
                  .document = std::move(document),
                  .picture = RatesPicture(result),
                  .files = {{"tuning.toml", table}}};
  }

 private:
  std::string Table(const train::TuningConfig& tuning) const {
    std::optional<double> parameters;
    if (millions_) parameters = ScaledParameters();
    return TuningText(tuning, parameters);
  }

  /// Refuses a file that cannot have a table, before anything is trained.
  void CheckFile() const {
    const train::TuningConfig any = {
        .rates = {experiment_.train.lr}, .held_out = {1}, .configuration = "0"};
    WithTuning(experiment_.path, Table(any));
  }

  double ScaledParameters() const { return *millions_ * 1e6; }

  /// Makes the experiment one of a scaled model.
  void Scale() {
    const model::ModelConfig model =
        treatments::ScaledModel(experiment_.model, ScaledParameters());
    if (!estimators::WidthsTellExponent(experiment_.model.dim, model.dim)) {
      ThrowError(ErrorKind::kConfig,
                 "rates: --parameters {:g} makes a model of width {}, but that "
                 "of the experiment is {}, and both must differ by a factor "
                 "{} or more to tell how the rate scales. Ask for another "
                 "size.",
                 *millions_, model.dim, experiment_.model.dim,
                 estimators::kLeastWidthFactor);
    }
    experiment_ =
        RungExperiment(experiment_, RungLike(experiment_, model),
                       train::LoadCorpusOf(experiment_).held_out().count);
  }

  WritingArguments arguments_;
  std::optional<double> millions_;
  train::Experiment experiment_;
};

}  // namespace

extern constinit const StudyKind kStudy_rates = {
    "rates", "Find the learning rate that a verdict may rest on",
    "isoloss study rates experiment.toml --write", "runs/<name>-rates",
    []() -> std::unique_ptr<Study> { return std::make_unique<Rates>(); }};

}  // namespace isoloss::studies
