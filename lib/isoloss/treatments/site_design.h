// Makes the arms of a study of sites.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/site_findings.h"
#include "isoloss/train/experiment.h"
#include "isoloss/treatments/site_kinds.h"

namespace isoloss::treatments {

/// Makes an arm with the recipe of these products and the exchange of `base`.
train::Arm ArmOf(const SiteProducts& products, const train::Arm& base,
                 std::span<const size_t> chosen, const std::string& name);

/// Returns the sets of products that the recipe of an arm has, and that
/// published filters have.
std::vector<estimators::NamedSet> SetsOf(const SiteProducts& products,
                                         const train::Arm& arm);

/// Makes arms of the baseline, all products, each alone, all but each, and the
/// sets.
std::vector<train::Arm> ArmsOfDesign(
    const SiteProducts& products, const std::vector<estimators::NamedSet>& sets,
    const train::Arm& baseline);

}  // namespace isoloss::treatments
