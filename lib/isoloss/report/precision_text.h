// What a verdict on precision rests on, as a few lines.
#pragma once

#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// A section with its heading, a line or two for each thing. "" if the
/// judgement has no such measures.
std::string RenderPrecision(const gate::Judgement& judgement,
                            const document::TextStyle& style);

/// What was tried, and that nothing else was: model, tokens, corpus, schedule
/// and seeds, in a sentence.
std::string ValidFor(const gate::Judgement& judgement);

}  // namespace isoloss::report
