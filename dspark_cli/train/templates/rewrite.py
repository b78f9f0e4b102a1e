"""Rewriting: a passage, invented on the spot, and what is to be done with it.

The answers to such prompts repeat much of the prompt, which is where a drafter gains most.
"""

from dspark_cli.train.templates.slots import Writer, capitalised

MEETING = (
    "Meeting of {weekday}, {1-28} {month}. Present: {given@a}, {given@b} and {given@c}.",
    "{given@a} reported that the plans for {event} are {almost ready|two weeks late|too expensive}.",
    "{given@b} will {call the printer|book the hall|ask for three offers|check the contract} by {weekday}.",
    "The budget of {2-90}00 euros was {approved|postponed|cut by a tenth}.",
    "{given@c} asked whether {business} could be a partner; nobody objected.",
    "The next meeting takes place in {place} on {weekday} at {8-18}:{10-50}.",
)
REVIEW = (
    "I bought {product@p} {last month|in {month}|as a present for my {sister|father|neighbour}}.",
    "It arrived {a day early|after two weeks|in a torn box} and was easy to unpack.",
    "The {handle|colour|manual|battery|smell|lid} is {better than expected|a disappointment|just right}.",
    "After {3-40} days it {still works like new|made a strange noise|fell off the table and survived}.",
    "The support answered {within an hour|only after three e-mails|kindly but without a solution}.",
    "For {15-190} euros I would {buy it again|look elsewhere|wait for a sale}.",
)
LETTER = (
    "Dear {given@a},",
    "I have been in {place} for {2-9} weeks now and share a room with {given@b}, {a:job} from {place}.",
    "Yesterday we {missed the last bus|found {a:thing} under the floor|saw {a:animal} by the road}.",
    "The food is {simple|wonderful|strange}, above all the {food}.",
    "Please tell {given@c} that the {thing} is in the second drawer.",
    "I feel a little {tired|homesick|proud|worried}, but the {light|air|music|silence} here is good for me.",
    "Yours, {given@d}",
)
NEWS = (
    "{place@p}, {1-28} {month} - {^:business} has opened {near the station|in an old school|by the river}.",
    "The owner, {given@a} {family@a}, {28-67}, used to work as {a:job}.",
    '"I wanted to do something useful with my hands," {family@a} said on {weekday}.',
    "About {20-400} people came to the opening, among them the mayor, {given@b} {family@b}.",
    "Neighbours {welcomed the idea|worry about noise|hope for more visitors}.",
    "The project cost {20-900},000 euros; {a third|half|a fifth} of it was paid by the town.",
)
RECIPE = (
    "For {2-8} people you need {200-900} g of {vegetable@f}, {1-4} onions and {100-500} ml of stock.",
    "Wash the {vegetable@f} and cut them into {small cubes|thin slices|quarters}.",
    "Fry the onions in {oil|butter} for {3-9} minutes until they are {soft|golden}.",
    "Add everything else and let it simmer for {10-45} minutes.",
    "Season with {salt and pepper|lemon juice|paprika|fresh herbs} and serve {hot|lukewarm|cold}.",
    "Leftovers keep in the fridge for {2-4} days.",
)
WEATHER = (
    "In {place} the morning of {weekday@d} begins with {fog|light rain|sunshine|snow showers}.",
    "Temperatures reach {5-31} °C by noon and fall to {0-4} °C at night.",
    "In the north a {weak|fresh|stormy} wind blows from the {west|east|south-west}.",
    "From {1-6} pm {thunderstorms are possible|the sky clears|clouds return}.",
    "{Hikers|Sailors|Gardeners|Drivers} should {take care|plan ahead|expect delays}.",
    "The outlook: {warmer|cooler|unsettled} until the end of the week.",
)
FIELD_NOTES = (
    "On {1-28} {month} our group watched {a:animal@x} in the hills behind {place}.",
    "The {animal@x} was about {2-9} years old and carried a {blue|red|yellow} mark.",
    "It spent {3-9} hours looking for food and rested for {20-55} minutes.",
    "At {5-11}:{10-59} it met another {animal@x}; the two ignored each other.",
    "{given} {family} took {12-90} photos, of which {2-9} are sharp.",
    "We think that the dry {season} explains the unusual behaviour.",
)
NOTICE = (
    "To all residents of {3-90} {Mill|Harbour|Orchard|Station|Chapel} Street:",
    "the {lift|heating|water|power} will be switched off on {weekday}, {1-28} {month}, from {7-11} am to {1-6} pm.",
    "The work is done by {family} & {Sons|Daughters|Partners}.",
    "Please {keep the cellar door open|move your bicycles|fill a few bottles beforehand}.",
    "If you have questions, ring {given} {family} on the {first|second|third} floor.",
    "We are sorry for the trouble.",
)
PROFILE = (
    "{given@a} {family@a} was born in {place} in 19{40-99} and trained as {a:job}.",
    "After {2-9} years in {place@p} {family@a} founded {business}.",
    "In 20{10-24} the company employed {5-90} people and sold {2-90} thousand {goods}.",
    "Colleagues describe {family@a} as {calm and exact|loud but fair|shy and stubborn}.",
    "In the evenings {family@a} {plays the accordion|repairs clocks|grows roses|writes crime stories}.",
)
LESSON = (
    "{^:topic@t} is a subject that {surprises|puzzles|divides} many people.",
    "Some think first of {topic}, others of {topic}.",
    "{given} {family@x}, {a:job} from {place}, has studied it for {5-40} years.",
    '"Most mistakes come from {hurry|habit|bad diagrams|old textbooks}," {family@x} explains.',
    "A survey among {100-900} {teachers|farmers|students|nurses} showed that {11-89} % had never heard of it.",
    "That is {a pity|no wonder|about to change}, because a new course starts in {month}.",
)
MATCH = (
    "{place@h} against {place@g} ended {0-5}:{0-5} on {weekday} before {2-40},000 spectators.",
    "In minute {3-44} {family@a} {hit the post|scored with the head|had to leave with an injury}.",
    "Coach {given} {family@b} changed {two|three} players after the break.",
    '"We {ran a lot and thought too little|deserved more|were simply lucky}," {family@b} said.',
    "The referee, {given} {family}, showed {2-7} yellow cards and overlooked {a handball|a foul|an offside}.",
    "{place@h} is now {second|fifth|ninth|last} in the table and plays in {place} next.",
)
CHAT_LOG = (
    "{given@a}: is anyone bringing the {thing} on {weekday}?",
    "{given@b}: not me, I lent it to {given@c} in {month}",
    "{given@c}: sorry, forgot it in {place} 😅 back on the {10-28}th",
    "{given@a}: then we need another plan. {given@b}, what about {business}?",
    "{given@b}: {closed for repairs|too expensive, {20-90} euros|I can ask my uncle}",
    "{given@c}: I'll pay for the {food} then, promise",
    "{given@a}: ok, {6-9} pm at the {station|bridge|fountain|old mill}, don't be late",
)
MANUAL = (
    "Thank you for choosing {device}.",
    "Before first use, remove the {film|tape|cardboard} and charge the battery for {2-9} hours.",
    "Press the {left|round|green} button for {2-5} seconds until the light turns {blue|white|orange}.",
    "Do not use it near {water|open fire|small children} or at temperatures above {35-60} °C.",
    "If it does not start, wait {5-30} minutes and repeat step {2-4}.",
    "The guarantee ends after {12-48} months; keep the receipt.",
    "Questions? Write to {family} Service, {place}.",
)
MEMORY = (
    "When I was {5-12}, we lived above {a bakery|a cinema|a shoe shop|a stable} in {place}.",
    "My grandmother, who had been {a:job}, kept {a:thing} on the window sill.",
    "Every {weekday} she told me about {a:animal} that could count to {seven|nine|twelve}.",
    "I {never believed it|believed every word|asked for proof}, and she only {smiled|laughed|sighed}.",
    "Years later, in {place}, I found {a photograph|a letter|a drawing} in the lining of her coat.",
    "It showed the animal, and below it somebody had written the number {7-99}.",
    "I still feel {emotion} when I think of it.",
)
OFFER = (
    "To let from {1-28} {month}: a flat of {28-95} square metres on the {second|third|top} floor in {place}.",
    "It has {1-4} rooms, a {small|bright|new} kitchen and a view of {the harbour|a car park|old chestnut trees}.",
    "The rent is {400-990} euros plus {60-190} for heating and water.",
    "Pets are {welcome|not allowed|a matter of negotiation}, and so is {music|smoking|a bicycle in the hall}.",
    "{given} {family} shows the flat on {weekday}s between {9-12} and {14-18} o'clock.",
    "The bus to the centre leaves every {5-30} minutes.",
)
DIALOGUE = (
    '"What makes a good {job@j}?" we asked {given@a} {family@a}, {35-79}, from {place}.',
    '"Patience, and {a:thing} that one can rely on," says {family@a}.',
    '"And what do people get wrong?" - "They think it has to do with {topic}. It has not."',
    "{family@a} began at {15-20}, by accident, after {event}.",
    "Today {family@a} teaches {3-15} young people and still gets up at {4-6}.",
    '"I would do it all again," says the {job@j}, "except for the winter in {place}."',
)
PASSAGES = (
    MATCH,
    CHAT_LOG,
    MANUAL,
    MEMORY,
    OFFER,
    DIALOGUE,
    MEETING,
    REVIEW,
    LETTER,
    NEWS,
    RECIPE,
    WEATHER,
    FIELD_NOTES,
    NOTICE,
    PROFILE,
    LESSON,
)

SENTENCES = (
    "If {given@a} had known about {event}, {given@a} would have brought the {thing}.",
    "{place} was more beautiful then I expected, but the hotel were loud and the soup to cold.",
    "Hereby I would like to inform you that {event} cannot be carried out on the planned date, {weekday}.",
    "Nobody never told {given} nothing about the {thing}.",
    "The fact that {society} is discussed so often is due to the fact that there are many who are of the opinion that something has to be done.",
    "u coming on {weekday}? bring {food} pls, {given} has the {thing} 👍",
    "{A:job} and {a:job} argued about {topic} until the waiter turned off the light.",
    "Although it was late, and although {given} was tired, and although the road was long, they went on to {place}.",
    "Our kick-off leverages synergies around {technology} to empower {audience}.",
    "Yesterday I seen {a:animal} in the garden, it were bigger than {a:thing}.",
    "You must hand in the form by {weekday} or you will lose your place.",
    "There are {3-9} reasons for {debate}, of which the first is money and the others are excuses.",
    "{given} found {a:thing} in {setting} and gave it to {a:job}.",
    "because of the rain {event} was moved to {weekday}, which {nobody|everybody} had expected",
    "Me and {given} was waiting for the {bus|train|ferry} since {2-9} hours, but it dont come.",
    "It is necessary that {product} are made available to {audience} in a timely manner.",
    "We utilise {technology} in order to facilitate the realisation of our goals in {place}.",
    "i think {society} is a problem but also a chance and thats what i want to say",
    "The {thing} was repaired by {given}, after it had been dropped by {a:animal}.",
    "{problem}, and that is why I write to you.",
    "Their going to {place} in {month} too see there cousin {given}.",
    "{given@a} is {a:job}. {given@a} lives in {place}. {given@a} has {a:animal}.",
    "Our {goods} are good and the price is good and the service is good too.",
    "Honestly, {debate} is kind of a really very important thing, you know.",
)
SENTENCE_TASKS = (
    'Correct the mistakes: "{sentence}"',
    'Rewrite in {a:tone} tone: "{sentence}"',
    "Say this more simply: {sentence}",
    'Translate into {language}: "{sentence}"',
    "Rewrite the sentence as {style} would put it: {sentence}",
    "Make it shorter: {sentence}",
    "Give three other ways of saying this:\n{sentence}",
    "Turn this into a question: {sentence}",
    'Rewrite for {audience}: "{sentence}"',
    "Put the following into the future tense.\n\n{sentence}",
    'Which words can be left out? "{sentence}"',
)
TASKS = (
    "Summarise the text in {one sentence|two sentences|three sentences}.",
    "Summarise this in plain words.",
    "Rewrite the following text in {a:tone} tone.",
    "Rewrite it for {audience}.",
    "Turn this into bullet points.",
    "Extract all names, places and dates as JSON.",
    "Extract every number from the text and say what it stands for.",
    "Make a table of who does what.",
    "Translate into {language}.",
    "Rewrite this in the style of {style}.",
    "Find a headline and a subtitle for the text.",
    "Shorten this to half its length without losing a fact.",
    "Correct errors in the text, if there are any, and return it unchanged otherwise.",
    "Rewrite in the third person.",
    "Put this into the {past|present|future} tense.",
    "Answer in one word each: Who? Where? When?\nThen quote the sentence that tells it.",
    "Write three questions that the text answers, with the answers.",
    "Which statements are facts and which are opinions?",
    "What is the mood of this text? Quote the words that show it.",
    "Expand the text by two sentences that fit.",
    "Rewrite the text as an e-mail to {person}.",
    "Rewrite the text as a tweet with an emoji.",
    "Copy the text, but replace every number by a word.",
    "Give keywords ({4-8}) for this text.",
    "Classify the text (news, letter, notice, report, review, recipe) and say why.",
    "Reply to this {briefly|politely|at length}.",
    "Reverse the order of the sentences and repair what no longer fits.",
    "Change all the names and places in the text, and leave the rest as it is.",
)

LEAST = 3
"""Sentences; fewer are no passage."""


def passage(writer: Writer) -> str:
    """Three sentences or more of one kind of text, in their order."""
    kind = writer.deal(PASSAGES)
    lines = list(kind)
    while len(lines) > LEAST and writer.chance(0.55):
        lines.pop(writer.number(1, len(lines) - 1))
    between = "\n" if kind in {LETTER, CHAT_LOG} else writer.deal((" ", " ", " ", "\n"))
    return writer.fill(between.join(lines))


def rewrite_prompt(writer: Writer) -> str:
    """One rewriting prompt: in most a task and its passage, in some a single sentence."""
    if writer.chance(0.35):
        sentence = writer.deal(SENTENCES)
        task = writer.deal(SENTENCE_TASKS).replace("{sentence}", sentence)
        return capitalised(writer.fill(task))
    task = writer.fill(writer.deal(TASKS))
    text = capitalised(passage(writer))
    layout = writer.deal(LAYOUTS)
    return layout.replace("TASK", task).replace("TEXT", text)


LAYOUTS = (
    "TASK\n\nTEXT",
    'TASK\n\n"TEXT"',
    "TEXT\n\nTASK",
    "Text:\nTEXT\n\nTask: TASK",
    "TASK\n\n---\nTEXT\n---",
    "Here is a text.\n\nTEXT\n\nTASK",
    "TASK\n\nTEXT\n\nThank you!",
    "Read this: TEXT\n\nTASK",
)
