"""The word lists: what the prompts speak of.

Every list has a name that templates use as a slot. Topics are noun phrases that stand after
"about"; jobs, animals and things are singular nouns without their article.
"""


def listed(text: str) -> tuple[str, ...]:
    """The entries of a list that is written with semicolons over several lines."""
    return tuple(" ".join(entry.split()) for entry in text.split(";"))


FIELDS = {
    "biology": listed("""
        photosynthesis; how muscles grow; the life of a honeybee; why leaves change colour;
        the human immune system; cell division; how octopuses think; bird migration; hibernation;
        symbiosis in coral reefs; the role of fungi in forests; how vaccines train the body;
        the nitrogen cycle; genetic inheritance; why we sleep; the structure of DNA; bacteria in
        the gut; how eyes evolved; animal camouflage; the work of enzymes; predators and prey in
        a pond; how seeds know when to sprout; mammals that lay eggs; the blood circulation;
        antibiotic resistance; natural selection; the anatomy of a feather; deep-sea life;
        regeneration in salamanders; pollination at night"""),
    "physics": listed("""
        gravity; black holes; static electricity; why the sky is blue; the speed of light;
        magnetism; sound waves; nuclear fusion; friction on ice; the second law of
        thermodynamics; how lasers work; superconductors; quantum entanglement; buoyancy;
        the Doppler effect; angular momentum on a bicycle; radio waves; entropy; heat pumps;
        how a microwave oven heats food; the physics of a tennis serve; lightning; time dilation;
        tides; rainbows; pressure under water; semiconductors; resonance in bridges;
        the expansion of the universe; the colours of stars"""),
    "chemistry": listed("""
        rust; acids and bases; how soap cleans; fermentation; the periodic table; catalysts;
        why bread browns in the oven; batteries; polymers; crystals; combustion; covalent bonds;
        the smell of rain; distillation; hard water; isotopes; how glue sticks; fireworks colours;
        electrolysis; noble gases; the chemistry of coffee; oxidation of fruit; salt solutions"""),
    "earth": listed("""
        volcanoes; plate tectonics; the water cycle; glaciers; ocean currents; deserts; hurricanes;
        river deltas; soil erosion; the ozone layer; permafrost; monsoons; cave formation;
        the carbon cycle; earthquakes; salt lakes; fjords; wetlands; wildfires; coral islands;
        mountain weather; groundwater; fossils; the layers of the atmosphere; sand dunes"""),
    "history": listed("""
        the Silk Road; the printing press; the fall of the Western Roman Empire; the Black Death;
        the French Revolution; the building of medieval cathedrals; the Industrial Revolution;
        the Hanseatic League; the history of paper; the Inca road system; Viking voyages;
        the Suez Canal; the Mali Empire; the abolition of slavery; the Meiji Restoration;
        the first railways; the Berlin Wall; the women's suffrage movement; the Ottoman Empire;
        the history of chocolate; the space race; trade in the Indian Ocean; the Great Depression;
        ancient Egyptian medicine; the Phoenician alphabet; the Congress of Vienna;
        the Mongol postal system; the history of clocks; the partition of India;
        the library of Alexandria; the Peace of Westphalia; the invention of zero"""),
    "economics": listed("""
        inflation; supply and demand; opportunity cost; compound interest; minimum wages;
        free trade; central banks; the gig economy; monopolies; carbon taxes; public goods;
        unemployment; exchange rates; the price of housing; bonds and shares; universal basic
        income; microcredit; the tragedy of the commons; insurance; tariffs; game theory;
        the stock market; recessions; comparative advantage; behavioural economics; tourism taxes;
        pension systems; the cost of traffic jams; supply chains; crowdfunding"""),
    "society": listed("""
        school uniforms; remote work; social media and teenagers; the four-day week; voting at
        sixteen; public libraries; car-free city centres; homework; privacy online; zoos;
        fast fashion; mass tourism; volunteering; gender equality at work; ageing populations;
        loneliness in big cities; free public transport; local newspapers; second-hand shopping;
        advertising to children; freedom of speech; dual citizenship; multilingual schools;
        the right to repair; tipping in restaurants; urban gardening; homeschooling;
        online dating; noise in cities; plastic packaging; neighbourhood associations"""),
    "philosophy": listed("""
        free will; the ship of Theseus; stoicism; the meaning of happiness; utilitarianism;
        what makes a promise binding; the limits of tolerance; the nature of time; forgiveness;
        the difference between knowledge and belief; existentialism; beauty; moral luck; honesty
        between friends; the veil of ignorance; personal identity; justice and mercy;
        the duty to help strangers; paradoxes; whether animals have rights; boredom; irony;
        the value of failure; scepticism; the social contract; the good life"""),
    "psychology": listed("""
        procrastination; first impressions; the placebo effect; habits; memory and smell;
        stage fright; motivation; grief; attention spans; peer pressure; decision fatigue;
        optimism; dreams; jealousy; the bystander effect; introversion; learning from mistakes;
        cognitive biases; stress before exams; homesickness; empathy; perfectionism; laughter;
        conflict in teams; the need for routine; childhood memories"""),
    "health": listed("""
        sleeping better; back pain from sitting; drinking enough water; healthy breakfasts;
        stretching after a run; seasonal allergies; eye strain; high blood pressure; iron in food;
        walking ten thousand steps; mindfulness; vitamin D in winter; recovering from a cold;
        quitting smoking; posture; first aid for burns; balanced vegetarian meals; jet lag;
        hearing loss; strong bones; stress relief; sugar in drinks; exercise in old age;
        dental care; headaches; breathing exercises; screen time before bed"""),
    "cooking": listed("""
        risotto; sourdough bread; a vegetable curry; lentil soup; homemade pasta; pancakes;
        a roast chicken; kimchi; hummus; a cheese soufflé;
        an apple pie; paella; miso soup; dumplings; fried rice; tomato sauce; pickled cucumbers;
        crème caramel; a potato salad; falafel; gingerbread;
        a picnic for six; goulash; tacos; a birthday cake; borscht; jam; ratatouille; an omelette;
        chocolate mousse; vegetable stock; flatbread; ramen; a chilli without meat; scones"""),
    "sports": listed("""
        the offside rule; training for a marathon; table tennis; chess as a sport; rock climbing;
        swimming technique; the Olympic Games; cricket; sumo wrestling; beach volleyball; judo;
        penalty shoot-outs; cycling in the mountains; rowing; basketball tactics; ice hockey;
        women's football; skateboarding; doping; fair play; the decathlon; archery; badminton;
        warming up; home advantage; coaching children; surfing; fencing; rugby; cross-country
        skiing; referees; the psychology of losing"""),
    "music": listed("""
        the blues; learning the piano as an adult; string quartets; hip-hop; jazz improvisation;
        the violin; choirs; folk songs; the history of the guitar; opera; film music; rhythm and
        metre; samba; perfect pitch; vinyl records; music streaming; the accordion; drumming;
        minor keys; lullabies; the human voice; electronic music; writing a chorus; flamenco;
        a school orchestra; harmony; playing by ear; reggae; bagpipes; silent concerts"""),
    "arts": listed("""
        impressionism; haiku; street art; Gothic novels; black-and-white photography; ceramics;
        magical realism; comics; calligraphy; fairy tales; perspective in painting; theatre masks;
        documentary films; science fiction; mosaics; satire; unreliable narrators; cubism;
        silent films; public sculpture; detective stories; origami; Baroque architecture;
        autobiographies; translation of poetry; colour theory; puppet theatre; woodcuts;
        stained glass; epic poems; ballet; museum design"""),
    "computers": listed("""
        recursion; how the internet works; hash tables; open source; version control; databases;
        passwords; machine learning; the cloud; encryption; operating systems; memory leaks;
        neural networks; compilers; spam filters; binary numbers; caching; unit tests; search
        engines; garbage collection; phishing; race conditions; data compression; code review;
        virtual machines; the history of programming languages; backups; graph algorithms;
        large language models; technical debt; regular expressions; accessibility on websites;
        microservices; sorting algorithms; floating-point numbers; containers; pointers;
        asynchronous code; type systems; Bloom filters"""),
    "everyday": listed("""
        moving to a new flat; keeping houseplants alive; packing a suitcase; learning to drive;
        organising a small kitchen; choosing a used bicycle; a rainy Sunday; saving on heating;
        getting up early; writing a diary; adopting a cat; planning a wedding; repairing clothes;
        the first day at school; a long train journey; babysitting; a power cut; camping in rain;
        buying glasses; a family reunion; waiting in queues; balcony gardening; lost luggage;
        noisy neighbours; cleaning windows; sharing a flat; a broken washing machine; flea markets;
        walking the dog; morning coffee; learning to knit; board game nights; writing letters"""),
    "technology": listed("""
        electric cars; wind turbines; drones; 3D printing; satellite navigation; solar panels;
        self-driving trains; smart homes; hydrogen planes; robots in hospitals; desalination;
        high-speed rail; the elevator; nuclear power; e-bikes; hearing aids; vertical farms;
        facial recognition; space telescopes; bridges; recycling of batteries; undersea cables;
        the sewing machine; lighthouses; translation software; touch screens; refrigerators;
        artificial intelligence in schools; wearable sensors; tunnels"""),
}

WORDS: dict[str, tuple[str, ...]] = {
    **FIELDS,
    "topic": tuple(topic for topics in FIELDS.values() for topic in topics),
    "science": tuple(
        topic for field in ("biology", "physics", "chemistry", "earth") for topic in FIELDS[field]
    ),
    "debate": listed("""
        banning cars from city centres; giving every pupil a laptop; a tax on sugar; raising the
        voting age; teaching philosophy in primary school; ending daylight saving time; a ban on
        fireworks; paying students for good marks; cameras in public places; a year of community
        service; letting shops open on Sundays; replacing exams with projects; a limit on tourist
        numbers; working from home for good; eating less meat; mandatory helmets for cyclists;
        free museums; a later start of school; self-checkout tills; keeping exotic pets; a ban on
        short flights; learning Latin; cash-free shops; open-plan offices; robots as carers;
        tuition fees; voting online; building on farmland; a maximum salary; nuclear power;
        keeping wolves in farming regions; publishing all salaries; smartphones at school;
        genetically modified crops; testing medicines on animals; space tourism; rent control"""),
    "pair": listed("""
        tea and coffee; a novel and a short story; Python and JavaScript; renting and buying a
        flat; cats and dogs as pets; trains and planes; a virus and a bacterium; weather and
        climate; a lake and a pond; SQL and NoSQL databases; butter and olive oil; mass and
        weight; jazz and classical music; saving and investing; a frog and a toad; a leader and a
        manager; the city and the countryside; printed books and e-readers; arteries and veins;
        a comet and an asteroid; TCP and UDP; sympathy and empathy; stacks and queues; yoga and
        pilates; nuclear fission and fusion; a simile and a metaphor; wood and steel as building
        materials; Athens and Sparta; processes and threads; baking soda and baking powder;
        gas and induction cooking; democracy and republic; moths and butterflies; speed and
        velocity; a patent and a copyright; running and swimming; lists and tuples in Python;
        oil and watercolour painting; a crocodile and an alligator; fixed and variable interest
        rates; REST and GraphQL; introverts and extroverts; concrete and brick; Rust and Go;
        tennis and squash; inductive and deductive reasoning; stocks and bonds; maize and wheat;
        laptops and tablets for students; supervised and unsupervised learning"""),
    "term": listed("""
        osmosis; irony; liquidity; algorithm; metaphor; photosynthesis; amortisation; democracy;
        entropy; ecosystem; sonnet; hypothesis; cartilage; bandwidth; dividend; empathy; isotope;
        latitude; nostalgia; placebo; quorum; refraction; satire; tariff; viscosity; zeitgeist;
        catalyst; fermentation; habeas corpus; inertia; kernel; lobbying; metabolism; oligarchy;
        polymorphism; solstice; symbiosis; tempo; torque; watershed; cognitive dissonance; mortgage;
        precedent; chiaroscuro; biodiversity; onomatopoeia; latency; federalism; syncopation"""),
    "place": listed("""
        Lisbon; Kyoto; Marrakech; Edinburgh; Hanoi; Buenos Aires; Reykjavik; Nairobi; Istanbul;
        Vancouver; Havana; Prague; Jaipur; Melbourne; Tallinn; Oaxaca; Dakar; Bergen; Seville;
        Tbilisi; Cusco; Ljubljana; Cape Town; Seoul; Naples; Samarkand; Montreal; Zanzibar; Krakow;
        Wellington; Porto; Fez; Luang Prabang; Salvador; Ghent; Valletta; Ulaanbaatar; Cartagena;
        Bruges; Palermo; Chiang Mai; Quito; Dubrovnik; Galway; Leipzig; Bordeaux; Beirut; Kigali;
        Honolulu; Helsinki; Riga; Amman; Nagasaki; Penang; Granada; Trieste; Santiago; Accra; Bath;
        Halifax; Freiburg; Lucerne; Madeira; Crete; Corsica; Sardinia; Patagonia; Tasmania; Lapland;
        Bavaria; Tuscany; Brittany; Cornwall; Andalusia; Transylvania; Hokkaido; Kerala; Sumatra;
        the Azores; the Faroe Islands; the Scottish Highlands; the Dolomites; the Black Forest;
        the Loire Valley; the Mekong Delta; the Atacama Desert; the Lake District; the Baltic coast;
        the Okavango Delta; New Orleans; Chicago; Savannah; Seattle; Santa Fe; Toronto; Lima;
        Montevideo; Bogotá;
        Münster;
        Tromsø; Zürich;
        Malmö"""),
    "job": listed("""
        nurse; carpenter; lighthouse keeper; pastry chef; software engineer; librarian; bus driver;
        beekeeper; tax adviser; marine biologist; kindergarten teacher; detective; watchmaker;
        violin maker; firefighter; astronaut; translator; gardener; pharmacist; journalist; judge;
        sound engineer; tailor; geologist; ferry captain; midwife; electrician; museum guide;
        shepherd; football coach; accountant; air traffic controller; baker; butcher; cartographer;
        chemist; choir conductor; cobbler; dentist; data analyst; dance teacher; farmer; florist;
        forest ranger; glassblower; graphic designer; hairdresser; hotel receptionist; illustrator;
        interpreter; jeweller; lawyer; locksmith; mathematician; mechanic; meteorologist; mountain
        guide; nutritionist; optician; orthopaedic surgeon; park ranger; philosopher; photographer;
        physiotherapist; piano tuner; pilot; plumber; police officer; postal worker; potter;
        primary school teacher; project manager; psychologist; puppeteer; radio host; sailor;
        science teacher; ski instructor; social worker; stage director; street musician; surveyor;
        taxi driver; tour guide; town planner; truck driver; undertaker; upholsterer; urban planner;
        veterinarian; volcanologist; waiter; weaver; web designer; welder; wildlife photographer;
        window cleaner; winemaker; yoga teacher; zookeeper; archaeologist; estate agent; umpire"""),
    "animal": listed("""
        otter; raven; tortoise; hedgehog; snow leopard; goldfish; donkey; owl; fox; octopus; hamster;
        penguin; camel; bat; parrot; elephant; ant; whale; goose; badger; cat; lizard; rabbit; crab;
        wolf; mole; swan; moose; alpaca; bee; squirrel; seahorse; crow; pony; ibex; mouse; eel;
        greyhound; heron; iguana; jellyfish; kangaroo; lynx; magpie; newt; pelican; salmon; toad"""),
    "thing": listed("""
        umbrella; teapot; bicycle; pocket watch; violin; lantern; backpack; suitcase; typewriter;
        mirror; ladder; compass; kettle; candle; fountain pen; map; key; old photograph; wool scarf;
        telescope; chess set; postcard; radio; rocking chair; hammer; alarm clock; kite; wooden boat;
        sewing machine; globe; matchbox; bell; quilt; glass jar; paper crane; ring; notebook; door;
        ticket; music box; lamp; button; coin; letter; camera; toaster; anchor; mask; spoon;
        harmonica; diary; raincoat; accordion; magnifying glass; hourglass; snow globe; envelope"""),
    "product": listed("""
        noise-cancelling headphones; a folding bicycle; a reusable coffee cup; a hiking backpack;
        an electric kettle; a standing desk; a bread maker; a smart watch; a camping stove;
        a language-learning app; a robot vacuum cleaner; organic dog food; a desk lamp;
        a meal-kit subscription; waterproof boots; a garden hose; a budget phone; a yoga mat;
        a board game about trains; a cast-iron pan; an air purifier; a water bottle with a filter;
        a mechanical keyboard; a solar charger; a pressure cooker; children's bunk beds;
        a travel pillow; an electric toothbrush; a sewing kit; handmade soap; a bicycle lock"""),
    "business": listed("""
        a mobile coffee bar; a bicycle repair shop; a small bakery; an online tutoring service;
        a second-hand bookshop; a dog-walking service; a vegan food truck; a co-working space;
        a toy library; a plant nursery; a boat rental; a craft brewery; a translation agency;
        a language café; a repair workshop for phones; an escape room;
        a farm shop; a podcast studio; a climbing gym; a cleaning company; a wedding planner's office;
        a zero-waste grocery; a pottery studio; a courier service on cargo bikes; a hostel;
        a mobile library; a music school; a board-game café;
        an app for sharing tools; a subscription for local cheese"""),
    "given": listed("""
        Amara; Bruno; Chloe; Dmitri; Elif; Farid; Greta; Hiro; Ines; Jamal; Katarzyna; Liam; Mei;
        Nadia; Omar; Priya; Quentin; Rosa; Sanjay; Tomas; Ursula; Viktor; Wanjiru; Ximena; Yusuf;
        Zofia; Anders; Beatriz; Carlos; Dalia; Emeka; Fatima; Giulia; Hassan; Ingrid; Joaquin; Kwame;
        Leila; Mateo; Noor; Olga; Pedro; Rania; Stefan; Tariq; Uma; Vera; Wei; Yara; Zeynep; Aisha;
        Bjarne; Clara; Declan; Esther; Finn; Hana; Ivan; Jonas; Kofi; Lucia; Miriam; Nikos; Oscar;
        Paula; Ravi; Sofia; Thandi; Umberto; Valentina; William; Yuki; Marta; Deepak; Freya; Hugo;
        Anaïs; Renée;
        Jörg; Björn;
        José; Zoë"""),
    "family": listed("""
        Okafor; Lindqvist; Tanaka; Moreau; Petrov; Alvarez; Schmidt; Kaya; Nguyen; O'Brien; Rossi;
        Haddad; Kowalski; Mbeki; Silva; Larsen; Chandra; Dubois; Novak; Ferreira; Johansson; Park;
        Rahman; Bianchi; Weber; Castillo; Ivanova; Murphy; Sato; Adeyemi; Horvat; Jensen; Costa;
        Papadakis; Reyes; Meyer; Bauer; Chen; Greenwood; Whitfield; Hartley; Ashdown; Nakamura"""),
    "emotion": listed("""
        relief; envy; pride; loneliness; curiosity; regret; delight; homesickness; anger; hope;
        embarrassment; gratitude; boredom; nervousness; longing; surprise; tenderness; guilt;
        calm; disappointment; wonder; impatience; grief; courage; suspicion; joy; doubt"""),
    "tone": listed("""
        cheerful; formal; dry; warm; sarcastic; poetic; matter-of-fact; enthusiastic; gentle; playful;
        solemn; confident; apologetic; urgent; friendly; neutral; humorous; old-fashioned; casual;
        diplomatic; ironic; encouraging; mysterious; blunt; academic; optimistic"""),
    "audience": listed("""
        a ten-year-old; first-year students; busy parents; my grandmother; complete beginners;
        retired engineers; a class of teenagers; tourists; small business owners; new colleagues;
        a curious neighbour; people without a science background; primary school pupils; experts;
        investors; volunteers; night-shift workers; someone who has never heard of it;
        a local newspaper's readers; a friend who hates jargon; nursing students; hobby gardeners;
        shy people; university applicants; a six-year-old; amateur athletes; new parents"""),
    "length": listed("""
        in one paragraph; in two or three sentences; in about 150 words; in under 100 words;
        in detail; briefly; in exactly five sentences; in roughly 300 words; in three short
        paragraphs; in a few lines; step by step; in plain words; in one sentence; at some length;
        in about half a page; in no more than 80 words; in four bullet points"""),
    "format": listed("""
        as a numbered list; as a table; in bullet points; as a dialogue; as a short blog post;
        as a letter; as a checklist; with headings; as a timeline; with one example for each point;
        as a set of flash cards; as questions and answers; as a Markdown table; as a short speech;
        with a summary at the end; in JSON; as an FAQ page; as a radio script"""),
    "style": listed("""
        a fairy tale; a news bulletin; a sea shanty; a Victorian letter; a detective novel;
        a sports commentary; a nature documentary; a recipe; a weather forecast; a love letter;
        a user manual; a court speech; a diary; a telegram; a travel guide; a lullaby; a pop song;
        a museum label; a complaint; a children's book; a western; a film noir; a legend"""),
    "poem": listed("""
        haiku; sonnet; limerick; free-verse poem; ballad; ode; short rhyming poem; acrostic;
        lullaby; elegy; prose poem; villanelle; nursery rhyme; four-line verse; concrete poem"""),
    "season": listed("spring; summer; autumn; winter"),
    "weekday": listed("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "month": listed("""
        January; February; March; April; May; June; July; August; September; October; November;
        December"""),
    "event": listed("""
        a birthday party; a charity run; a school reunion; a company picnic; a book launch;
        a science fair; a wedding; a village festival; a farewell party; a job fair; a hackathon;
        an open day; a concert in the park; a cooking class; a chess tournament; a flea market;
        a retirement dinner; a film night; a parents' evening; a clean-up day; a baby shower"""),
    "person": listed("""
        my boss; my landlord; a new neighbour; my sister; a former teacher; a customer; my best
        friend; the city council; a hotel manager; my team; a colleague; the head of the school;
        my doctor's office; an old friend; a supplier; the editor of a magazine; my uncle;
        the building manager; a professor; the airline; my coach; my bank; a recruiter"""),
    "occasion": listed("""
        asking for two days off; cancelling a meeting; thanking them for their help; complaining
        about a late delivery; asking for a refund; congratulating them on a promotion;
        apologising for a misunderstanding; announcing that I am moving away; asking for a letter
        of recommendation; reminding them of an unpaid bill; inviting them to dinner; declining
        an invitation; reporting a broken heater; asking for feedback on a draft; proposing a
        new meeting time; asking about a job; following up after an interview; offering to help;
        explaining why a project is late; asking for a quieter evening; giving notice;
        introducing a new team member; requesting a longer deadline; sharing good news"""),
    "skill": listed("""
        juggle; touch-type; bake bread; read sheet music; ride a horse; tie a bow tie; swim the
        crawl; sew on a button; play the ukulele; change a tyre; speak in public; prune roses;
        solve cryptic crosswords; take better photos; draw faces; sharpen a knife; negotiate a
        salary; write a will; fold a fitted sheet; build a birdhouse; set up a home network;
        make cold-brew coffee; train a puppy; grow tomatoes; paint a wall; plan a budget;
        remove a wine stain; descale a kettle; jump-start a car; clean a camera lens; compost
        kitchen waste; learn a poem by heart; iron a shirt; fix a leaking tap; read faster;
        whistle with two fingers; make candles; write a cover letter; back up a phone; meditate"""),
    "goal": listed("""
        learning Spanish; running ten kilometres; saving money for a trip; getting fit after fifty;
        reading more books; eating more vegetables; learning to code; finding a new job; sleeping
        eight hours; making new friends; writing a novel; spending less time online; passing a
        maths exam; starting a garden; learning to cook; preparing for a job interview; moving
        abroad; getting over stage fright; keeping a tidy desk; learning the guitar; waking up
        earlier; cutting down on sugar; hiking alone; changing career at forty"""),
    "problem": listed("""
        my flatmate never washes up; I cannot concentrate after lunch; my team ignores my ideas;
        I feel lonely since I moved here; my teenage son spends all night gaming; I keep forgetting
        names; my best friend owes me money; I am afraid of flying; my neighbour's dog barks all
        day; I have too many hobbies; my manager changes the goals every week; my tomatoes have
        brown spots; I got a bad mark in chemistry; my laptop is painfully slow; I say yes to
        everything; I have two job offers; my cat scratches the sofa; I always arrive late; my
        parents disapprove of my plans; I burn everything I cook; I cannot sleep before exams;
        my bike was stolen; my presentation is tomorrow and I am not ready; my plants keep dying;
        a colleague takes credit for my work; I lost my passport abroad; my knees hurt when I run;
        the heating in my flat is too loud; I never finish the books I start; I miss my old job"""),
    "dilemma": listed("""
        keeping a found wallet; telling a friend that their partner lies; reporting a colleague who
        cheats on expenses; breaking a promise to help a stranger; lying to protect someone's
        feelings; taking a well-paid job at a company that pollutes; reading a child's diary;
        copying software for a poor school; using a dead relative's letters in a book; jumping a
        queue for a sick friend; eating meat although one loves animals; sharing a secret to prevent
        harm; giving money to a beggar who drinks; letting a machine choose who gets a transplant;
        hiring a friend over a better candidate; feeding wild animals in winter; editing the genes
        of an unborn child; recording a conversation without consent; firing a loyal but slow worker;
        using AI to write a condolence letter"""),
    "figure": listed("""
        Marie Curie; Ibn Battuta; Ada Lovelace; Cleopatra; Galileo; Florence Nightingale; Confucius;
        Leonardo da Vinci; Nelson Mandela; Hypatia; Johannes Kepler; Mary Wollstonecraft; Mozart;
        Frida Kahlo; Charles Darwin; Sappho; Mansa Musa; Alan Turing; Hildegard of Bingen; Voltaire;
        Rosalind Franklin; Simon Bolivar; Emmy Noether; Socrates; Sojourner Truth; Michael Faraday;
        Jane Austen; Avicenna; Clara Schumann; Alexander von Humboldt; Murasaki Shikibu; Archimedes"""),
    "genre": listed("""
        fantasy; science fiction; mystery; romance; horror; comedy; adventure; western; fairy-tale;
        historical; thriller; coming-of-age; ghost; spy; sports; sea; folk; satirical"""),
    "setting": listed("""
        a night train; an abandoned amusement park; a lighthouse in a storm; a space station;
        a small mountain village; a crowded market; an underwater city; a library after closing time;
        a desert inn; a snowed-in airport; a medieval workshop; a ship without wind; a hospital at
        night; a city on the back of a giant turtle; a school for magicians who cannot do magic;
        a bakery at four in the morning; an island with no maps; a courtroom; a museum of lost
        things; a vineyard in autumn; a research base in Antarctica; a rooftop garden; a bus stop in
        the rain; a factory for clouds; an old cinema; a caravan in the steppe; a flooded street;
        a theatre during a power cut; a motorway service station; a village where nobody sleeps"""),
    "plot": listed("""
        who finds a message that was meant for someone else; who must choose between two promises;
        who loses the sense of time; who returns after twenty years; who learns to trust a stranger;
        who hides a harmless secret; who wakes up with a new talent; who misses the last boat;
        who has one day to repair a mistake; who inherits a strange house; who befriends a rival;
        who stops telling lies for a week; who follows a trail of blue paint; who hears music nobody
        else hears; who tries to return a stolen thing; who refuses to give up a garden; who writes
        letters to the future; who is mistaken for somebody famous; who keeps a storm in a bottle;
        who discovers that the map is wrong; who forgets one word every day; who wins by losing;
        who has to cook for an enemy; who finds a door that was not there yesterday; who plans the
        perfect apology; who learns a language from birds; who sells the last tree; who cannot cross
        a bridge; who meets an older self; who guards something worthless"""),
    "opening": listed("""
        The clock had stopped again; Nobody had asked the baker; It was the third letter that week;
        The river was louder than usual; She counted the steps twice; There were no birds that
        morning; The suitcase was too light; He had promised not to look back; The lamp went out
        just before the knock; On the last day of summer the ferry did not come; My grandfather
        never spoke of the orchard; The map had a hole exactly where we stood; By noon the snow had
        turned blue; Someone had painted the door green; The queue reached around the corner;
        The first rule was simple; All the dogs in the street began to howl; The piano arrived
        without its keys; We found the boat where the road should have been; The phone rang in the
        empty flat; I was born on the night the bridge fell; The garden had grown over the gate"""),
    "language": listed("""
        French; German; Spanish; Italian; Portuguese; Dutch; Polish; Swedish; Japanese; Turkish;
        Latin; Greek; Czech; Finnish; Esperanto"""),
    "food": listed("""
        apples; lemons; walnuts; croissants; tomatoes; eggs; olives; carrots; cherries; muffins;
        potatoes; peaches; pretzels; onions; plums; pancakes; sandwiches; dumplings; figs; biscuits"""),
    "vegetable": listed("""
        carrots; potatoes; courgettes; leeks; mushrooms; parsnips; tomatoes; peppers; aubergines;
        green beans; beetroots; pumpkins; turnips; celery sticks; spinach leaves"""),
    "device": listed("""
        the Breeze desk fan; the Pico pocket radio; the Otter bicycle lamp; the Nimbus humidifier;
        the Tempo kitchen scale; the Lumen torch; the Robin doorbell; the Comet head lamp;
        the Fjord beard trimmer; the Pebble loudspeaker; the Meadow lawn robot; the Atlas drill;
        the Cricket baby monitor; the Harbour weather station"""),
    "goods": listed("""
        pencils; stamps; marbles; tickets; books; candles; T-shirts; balloons; bricks; tiles; stickers;
        postcards; buttons; batteries; plates; chairs; cushions; flower pots; beads; screws; seeds"""),
}
