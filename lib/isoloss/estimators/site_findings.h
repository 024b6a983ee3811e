// Judges which products can be quantised. The findings are their ranking, the
// frontier of loss against speed, and the chosen set.
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

/// Each interval on its own holds the mean over seeds with 95 %.
inline constexpr double kSiteAlpha = 0.025;
/// A product is called harmful if its adjusted p-value is below this.
inline constexpr double kHarmful = 0.05;

/// These facts of a product need no loss.
struct SiteProduct {
  std::string kind;
  size_t role = 0;
  std::vector<ModelShare> shares = {};  ///< of each model
  double saved_seconds = 0;             ///< of a token, by the speed model
  /// The error is ||g - r|| / ||r||, where g is the whole gradient with only
  /// this product quantised and r is the gradient without it. Weights, batch
  /// and routing are the same. The first error is of step 1.
  std::optional<double> first_error = std::nullopt;
  std::optional<double> last_error = std::nullopt;

  std::string Name() const { return kind + " " + kProductRoleNames.at(role); }
};

/// A named set has products that somebody quantises together.
struct NamedSet {
  std::string name;
  std::string source = {};
  std::vector<size_t> products = {};
};

struct SiteEvidence {
  std::vector<SiteProduct> products;
  /// The order is the baseline, all products, each product alone, and all but
  /// each.
  std::vector<ArmLosses> arms;
  /// These sets are trained, too, but no fit uses them.
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
  /// The harm by the additive model. The model gives one interval and p-value
  /// by its error (ErrorOf), and one by the spread of the product's own seeds.
  /// The wider interval and the larger p-value count, as they do for predicted
  /// gaps.
  stats::MeanInterval harm = {};
  double p = 1;         ///< that its harm is not above 0, one-sided t
  double adjusted = 1;  ///< for all products (Benjamini and Hochberg)
};

struct SetFinding {
  NamedSet set;
  double speed_up = 1;
  stats::MeanInterval predicted = {};  ///< gap to the baseline, nats
  std::optional<stats::MeanInterval> measured = std::nullopt;
  /// This is the measured gap minus the predicted one, on the same seeds.
  std::optional<stats::MeanInterval> difference = std::nullopt;

  /// Returns whether the set has the predicted gap, as far as the seeds can
  /// tell. It is false if its runs did not end with finite losses.
  bool inside() const {
    return difference && std::isfinite(difference->mean) &&
           difference->lower <= 0 && difference->upper >= 0;
  }
  /// Returns whether the set's own runs show a gap below the margin.
  bool safe(double margin_nats) const {
    return measured && measured->upper < margin_nats;
  }
};

struct SiteFindings {
  size_t seeds = 0;
  double baseline_loss = 0;  ///< nats, mean
  double margin_nats = 0;
  std::vector<ProductFinding> ranked;  ///< unstable first, then descending harm
  /// Products that make a step faster are added one by one. First come the
  /// products whose harm can't be told apart from 0, by descending time that
  /// they save. The remaining products follow by ascending harm for each
  /// second saved.
  std::vector<SetFinding> frontier;
  /// These are every product, and the sets of the evidence.
  std::vector<SetFinding> sets;
  /// The fastest of the frontier and of the sets without products that save no
  /// time, among sets that qualify. The upper end of such a set's predicted
  /// gap lies below the margin. No known runs of it diverged or have a gap
  /// wholly above the margin. Empty if no set qualifies.
  std::optional<SetFinding> recipe;
  std::vector<std::string> notes;
};

/// Ranks the products and chooses a set.
/// Errors   as AdditiveModel.
SiteFindings JudgeSites(const SiteEvidence& evidence);

/// Compares a set's prediction with runs of fresh seeds, which the prediction
/// did not use. `baseline` and `arm` have the same seeds. The interval of the
/// difference of two independent means is that of Zou and Donner (Statistics
/// in Medicine 27, 2008, 1693-1702).
void CompareAfresh(const ArmLosses& baseline, const ArmLosses& arm,
                   SetFinding& finding);

/// These are all results of a study of sites.
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
  /// The TOML of findings.recipe, or "" if there is none.
  std::string recipe_text = {};
  std::vector<std::string> notes = {};

  double Percent(double nats) const {
    return 100 * nats / findings.baseline_loss;
  }
};

}  // namespace isoloss::estimators
