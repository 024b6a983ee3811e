// Which products can be quantised: their ranking, the frontier of loss against
// speed, and the set that is chosen.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/additive_model.h"
#include "isoloss/estimators/speed_model.h"
#include "isoloss/stats/mean_interval.h"

namespace isoloss::estimators {

/// Intervals hold the mean over seeds with 95 %, each on its own.
inline constexpr double kSiteAlpha = 0.025;
/// A product is called harmful if its adjusted p-value is below it.
inline constexpr double kHarmful = 0.05;

/// The facts of a product that need no loss.
struct SiteProduct {
  std::string kind;
  size_t role = 0;
  std::vector<ModelShare> shares = {};  ///< of each model
  double saved_seconds = 0;             ///< of a token, by the speed model
  /// ||g - r|| / ||r|| of the whole gradient with only this product quantised,
  /// at the same weights, batch and routing: at step 1 and at the last step.
  std::optional<double> first_error = std::nullopt;
  std::optional<double> last_error = std::nullopt;

  std::string Name() const { return kind + " " + kProductRoleNames.at(role); }
};

/// Products that somebody quantises together.
struct NamedSet {
  std::string name;
  std::string source = {};
  std::vector<size_t> products = {};
};

struct SiteEvidence {
  std::vector<SiteProduct> products;
  /// The baseline, all products, each product alone, and all but each, in this
  /// order.
  std::vector<ArmLosses> arms;
  /// Trained too, and not used to fit anything.
  std::vector<NamedSet> sets;
  std::vector<ArmLosses> set_losses;
  std::function<double(std::span<const size_t>)> speed_up;
  double margin_percent = 0.25;
};

struct ProductFinding {
  size_t product = 0;
  bool unstable = false;             ///< a run with it alone had no finite loss
  stats::MeanInterval only = {};     ///< loss with it alone - baseline, nats
  stats::MeanInterval all_but = {};  ///< loss of all - loss of all but it
  /// By the additive model. Of two intervals the wider one, and of two p-values
  /// the larger: by the error that the model has of it (ErrorOf), and by the
  /// spread of its own seeds. So are predicted gaps.
  stats::MeanInterval harm = {};
  double p = 1;         ///< that its harm is not above 0, one-sided t
  double adjusted = 1;  ///< for all products (Benjamini and Hochberg)
};

struct SetFinding {
  NamedSet set;
  double speed_up = 1;
  stats::MeanInterval predicted = {};  ///< gap to the baseline, nats
  std::optional<stats::MeanInterval> measured = std::nullopt;
  /// Measured - predicted on the same seeds.
  std::optional<stats::MeanInterval> difference = std::nullopt;

  /// The set has the gap that was predicted, as far as the seeds can tell.
  /// Not if its runs did not end with finite losses.
  bool inside() const {
    return difference && std::isfinite(difference->mean) &&
           difference->lower <= 0 && difference->upper >= 0;
  }
  /// Its own runs show a gap below the margin.
  bool safe(double margin_nats) const {
    return measured && measured->upper < margin_nats;
  }
};

struct SiteFindings {
  size_t seeds = 0;
  double baseline_loss = 0;  ///< nats, mean
  double margin_nats = 0;
  std::vector<ProductFinding> ranked;  ///< unstable first, then descending harm
  /// Products that make a step faster, added one by one: first those whose harm
  /// can't be told apart from 0, by descending time that they save, then the
  /// others, by ascending harm for each second saved.
  std::vector<SetFinding> frontier;
  /// Every product, and the sets of the evidence.
  std::vector<SetFinding> sets;
  /// The fastest of the frontier, and of the sets without products that save no
  /// time, whose predicted gap lies below the margin with its upper end, and
  /// of which no runs are known that lie above it or diverged; empty if there
  /// is none.
  std::optional<SetFinding> recipe;
  std::vector<std::string> notes;
};

/// Errors   as AdditiveModel.
SiteFindings JudgeSites(const SiteEvidence& evidence);

/// Holds what a set was predicted to have against runs of other seeds than the
/// prediction is from. `baseline` and `arm` have the same seeds. The interval
/// of the difference of two independent means is that of Zou and Donner
/// (Statistics in Medicine 27, 2008, 1693-1702).
void CompareAfresh(const ArmLosses& baseline, const ArmLosses& arm,
                   SetFinding& finding);

/// All that a study of sites says.
struct SitesStatement {
  std::string experiment;
  std::string baseline;  ///< arms
  std::string arm;
  std::string candidate;  ///< recipe of the arm
  int64_t steps = 0;
  size_t runs = 0;
  double margin_percent = 0.25;
  std::vector<SiteProduct> products;
  SiteFindings findings;
  SpeedModel speed;
  /// TOML of findings.recipe; "" if there is none.
  std::string recipe_text = {};
  std::vector<std::string> notes = {};

  double Percent(double nats) const {
    return 100 * nats / findings.baseline_loss;
  }
};

}  // namespace isoloss::estimators
