// The evidence that a verdict on precision rests on.
#pragma once

#include <string>

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// The document is the key `precision` of verdict.json, and for people a
/// section with a line or two for each thing. It requires judgement.precision.
document::Document PrecisionDocument(const gate::Judgement& judgement);

/// What was tried, and that nothing else was: model, tokens, corpus, schedule
/// and seeds, in a sentence.
std::string ValidFor(const gate::Judgement& judgement);

}  // namespace isoloss::report
