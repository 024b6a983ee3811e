// Writes the evidence for a verdict on precision.
#pragma once

#include <string>

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Returns the key `precision` of verdict.json, and for people a section with a
/// line or two for each item. It requires judgement.precision.
document::Document PrecisionDocument(const gate::Judgement& judgement);

/// Says in a sentence what was tried, and that nothing more was: model, tokens,
/// corpus, schedule and seeds.
std::string ValidFor(const gate::Judgement& judgement);

}  // namespace isoloss::report
