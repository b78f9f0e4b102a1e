"""Stories: tales, scenes, poems and dialogues to be invented."""

from dspark_cli.train.templates.slots import Writer, capitalised, followed

TALES = (
    "Write a story about {a:job} {plot}.",
    "Write {a:genre} story set in {setting}{, with {a:thing} in it|}.",
    "Tell a bedtime story about {a:animal} and {a:thing}.",
    'Continue this story: "{opening}."',
    "{opening}. {given} ... - how does this go on? Tell me {length}.",
    "{opening}.\n\nWrite the next {three|four|five} paragraphs.",
    'Write a story that begins with "{opening}" and ends in {setting}.',
    "Write a dialogue between {a:animal} and {a:animal} about {emotion}.",
    "Write a scene in {setting}: {given}, {a:job}, meets {given}, {a:job}. They both want the {thing}.",
    "Invent a myth that explains {topic}.",
    "Tell the tale of {a:job} and {a:job} in the style of {style}.",
    "Retell the day of {a:animal} in the style of {style}.",
    "Write a fable about {a:animal} and {a:animal} with a moral about {emotion}.",
    "Describe {setting} so that the reader feels {emotion}, without naming the feeling.",
    "Write a letter from {given}, {a:job} in {place}, to a sister who has not written for years.",
    "Write the diary of {a:job} on three days: {weekday}, {weekday} and the day when everything changes.",
    "Write a story {length} in which {a:thing} saves {a:animal}.",
    'Write a story without the word "{the|and|was|very|said}" about {a:job} in {setting}.',
    'Write the last page of {a:genre} novel whose first line is: "{opening}."',
    "Write a scene of {emotion} between a father and a daughter who repair {a:thing}.",
    "Rewrite the tale of {a:job} {plot}, but seen by {a:animal}.",
    "Write a comic scene: {given} tries to sell {a:thing} to {a:job}.",
    "Write a ghost story for children; the ghost is afraid of {a:thing}.",
    "{given@a} and {given@b} are stuck in {setting}. {given@a} feels {emotion}, {given@b} hides it. Write their talk.",
    "Write a crime story in ten sentences. Victim: {a:job}. Clue: {a:thing}. Place: {place}.",
    "Tell me a legend about the founding of {place} with {a:animal} in the main role.",
    "Write about a world in which {nobody can lie|it rains upwards|shadows can be sold|every door leads to the sea|colours have a price|people age only when they laugh|music is forbidden|the moon is inhabited by {animal}s}.",
    "Use these words in a story: {thing}, {animal}, {place}, {emotion}.",
    "Describe the first meeting of {given} and {given} at {event}, {length}.",
    "Write a radio play for two voices in {setting}. Someone has lost {a:thing}.",
    "Write a story in which time runs backwards for {a:job}.",
    "Write the speech of {a:animal} that was elected mayor of {place}.",
    "Write a love story between {a:job} and {a:job}, told through {notes on a fridge|shopping lists|postcards|voice messages|weather reports}.",
    "Once upon a time, {a:animal} lived in {setting}. Go on, {length}.",
    "Write a scene for the stage: {given} ({a:job}) must tell {given} ({a:job}) a bad piece of news.",
    "Write a story for {audience} about {a:job} {plot}.",
    "Show, don't tell: {given}, {a:job}, feels {emotion}. One paragraph.",
    "Write a short story in letters between {given} in {place} and {given} in {place}, a hundred years apart.",
)

FORMS = (
    "Write {a:poem} about {a:animal}.",
    "Write {a:poem} about {emotion} in {season}.",
    "Write {a:poem} for {person}. It should mention {a:thing}.",
    "a short poem about {place} in the rain",
    "Compose {a:poem} about {topic}, {tone} in tone.",
    "Write a song about {a:job} from {place}: two verses and a chorus.",
    "Write a monologue of {a:thing} that was left in {setting}.",
    "Six-word stories, please: {3-8} of them, about {emotion}.",
    "Plan {a:genre} novel: title, main character ({a:job}), conflict, and {5-9} chapters with one line each.",
    "Invent a hero for {a:genre} story: name, home, fear, wish, and an odd habit.",
    "Write a story with these elements:\n- hero: {a:job}\n- place: {setting}\n- object: {a:thing}\n- end: {happy|open|sad|surprising}",
    "Write a tongue twister about {a:animal} with {a:thing}, then a second, harder one.",
    "Write an alphabet of {place}: one line for each letter from A to {F|G|H|J|K}.",
    "Choose your own adventure: start in {setting} with {a:thing} in my pocket. Stop after the first choice.",
    "Give me {3-7} story ideas with {a:job} and {a:animal}, one sentence each.",
    "Write {a:tone} obituary for {a:thing}.",
    "Write the opening of {a:genre} novel set in {place}. First person, {tone}.",
    "What does {a:thing} dream of? Write it as {a:poem}.",
    "Write a counting rhyme with {animal}s from one to {five|seven|ten}.",
    "{A:job} walks into {setting} ... make it a joke, then a tragedy.",
)
"""What is complete without a further wish."""

AFTER = (
    " Make it {tone}.",
    " End with a surprise.",
    " At most {100-400} words.",
    " Use the present tense.",
    " Give it a title.",
    " No dialogue.",
    " Mostly dialogue.",
    " Set it in {place}.",
    " The weather should play a part.",
    " Let {a:animal} appear.",
    " Write it for {audience}.",
    " The hero's name is {given}.",
    " ✨",
    " Begin with a sound and end with a smell.",
    " Tell it in the voice of {a:job} who was there but understood little.",
    " There should be {a:thing} on the first page and {a:animal} on the last.",
    " Keep the sentences short, and let {emotion} turn into {emotion}.",
    '\n\nRules:\n- {2-5} paragraphs\n- {tone} tone\n- the word "{thing}" in each paragraph',
    "\n\nCharacters:\n{given}, {20-80}, {job}\n{given}, {5-19}, {curious|stubborn|shy|loud}",
)


def story_prompt(writer: Writer) -> str:
    """One story prompt; most tales come with a wish."""
    tale = writer.number(1, len(TALES) + len(FORMS)) <= len(TALES)
    text = capitalised(writer.fill(writer.deal(TALES if tale else FORMS)))
    if tale and writer.chance(0.75):
        text = followed(text, writer.fill(writer.deal(AFTER)))
    if writer.chance(0.05):
        text = text.lower().rstrip(".")
    return text
