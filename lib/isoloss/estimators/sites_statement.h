// All that a study of sites says, for reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/estimators/site_findings.h"
#include "isoloss/estimators/speed_model.h"

namespace isoloss::estimators {

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
